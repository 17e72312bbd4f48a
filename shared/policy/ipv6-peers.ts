import type { Problems } from './problems.ts';
import type { RuleElement, RulePeer } from './types.ts';

/** Whether all that the peer stands for is IPv6, which pods neither get nor send in a direction that is enforced. */
export function isIPv6(peer: RulePeer): boolean {
  if (peer.kind === 'cidr') return peer.cidr.cidr.includes(':');
  return peer.kind === 'entity' && peer.entity === 'world-ipv6';
}

/** Warns that peers of IPv6 do not make the difference that they seem to make; once for an element. */
export function warnOfIPv6({ peers, path, direction, verdict }: Omit<RuleElement, 'ports'>, problems: Problems): void {
  if (peers === 'any') return;
  const found = peers.filter(isIPv6);
  const [first] = found;
  if (first === undefined) return;
  problems.warn(path, () => {
    const name = nameOf(first);
    const names = found.length === 1 ? name : `${name} and ${found.length - 1} more`;
    const effect = verdict === 'deny' ? ', not only' : ': nothing is allowed by';
    return `all IPv6 ${direction === 'ingress' ? 'to' : 'from'} the selected pods is dropped, as they have rules for ${direction}${effect} ${names}`;
  });
}

function nameOf(peer: RulePeer): string {
  if (peer.kind === 'cidr') return peer.cidr.cidr;
  return peer.kind === 'entity' ? peer.entity : 'a selector';
}
