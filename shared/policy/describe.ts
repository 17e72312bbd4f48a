import { isIcmp, LAST_PORT } from './protocols.ts';
import type { PeerRef, ResolvedRule, RulePort } from './types.ts';

/** One line for people: `deny ingress from 10.0.0.0/8 except 10.1.0.0/16 on TCP 80, UDP 53-60, TCP http (spec.ingressDeny[0])`. */
export function describeRule(rule: ResolvedRule): string {
  const peers =
    rule.peers === undefined
      ? 'any peer'
      : rule.peers.length === 0
        ? 'nobody'
        : rule.peers.map(describePeer).join(' or ');
  const ports =
    rule.ports === undefined
      ? 'every protocol and port'
      : rule.ports.length === 0
        ? 'no port'
        : rule.ports.map(describePorts).join(', ');
  const side = rule.direction === 'ingress' ? 'from' : 'to';
  return `${rule.verdict} ${rule.direction} ${side} ${peers} on ${ports} (${rule.path})`;
}

function describePeer(peer: PeerRef): string {
  if ('entity' in peer) return `entity ${peer.entity}`;
  if ('fqdn' in peer) return `addresses of ${peer.fqdn}`;
  if ('cidr' in peer) {
    const cidr = peer.everyone === true ? `every address of ${peer.cidr}` : peer.cidr;
    return peer.except?.length ? `${cidr} except ${peer.except.join(', ')}` : cidr;
  }
  return `peer set ${peer.peerSet}`;
}

function describePorts(port: RulePort): string {
  if ('name' in port) return `${port.protocol} ${port.name}`;
  const { protocol, from, to } = port;
  if (from === 0 && to === LAST_PORT) return protocol;
  const what = isIcmp(protocol) ? `${protocol} type` : protocol;
  return from === to ? `${what} ${from}` : `${what} ${from}-${to}`;
}
