import { type Prefix, parsePrefix, prefixContains } from '@weir/net';
import { isIPv6 } from './ipv6-peers.ts';
import type { PolicyProblem, Rule, RuleElement, RulePeer } from './types.ts';

const WORLDS: ReadonlySet<string> = new Set(['world', 'world-ipv4']);
const JUDGED = "a Service's address is judged as world, by the Service's port, before it is translated";
/** A NodePort is at nodes' addresses, which no CIDR matches. */
const DENY = 'deny that address by toCIDR, and NodePorts by toEntities host and remote-node, too';
/** Where clusters take the addresses of their Services from: RFC 1918, RFC 6598. */
const PRIVATE = ['10.0.0.0/8', '172.16.0.0/12', '192.168.0.0/16', '100.64.0.0/10'].map((text) => parsePrefix(text));

/**
 * What a policy says that does not hold through a Service: a packet to a Service's own address (its clusterIP, say) is judged as it
 * leaves the pod, before kube-proxy translates it. Takes the rules that `parsePolicy` returned. Goes when Services are translated before
 * they are judged.
 *
 * The other way round, what comes through a NodePort or a LoadBalancer is masqueraded by the node that takes it in: a deny does not see
 * who sent it.
 *
 * @returns at most one warning for each element
 */
export function serviceWarnings(rules: readonly Rule[]): PolicyProblem[] {
  return rules.flatMap((rule) => {
    const open = !rule.defaultDeny.egress || rule.elements.some((element) => allowsWorld(element));
    return rule.elements.flatMap((element) => {
      const message = warning(element, open);
      return message === undefined ? [] : [{ code: 'Warning' as const, path: element.path, message }];
    });
  });
}

/** @param open whether the rule allows Services' addresses by something else */
function warning(element: RuleElement, open: boolean): string | undefined {
  const { direction, verdict, peers, ports } = element;
  if (peers !== 'any' && peers.every((peer) => isNobody(peer) || isIPv6(peer))) return undefined;
  if (direction === 'ingress') {
    if (verdict === 'allow') return undefined;
    return 'does not hold for what comes through a NodePort or LoadBalancer Service: the node that takes it in masquerades it, so that it counts as world, or as remote-node on another node; set externalTrafficPolicy Local on Services of these pods';
  }
  if (verdict === 'deny') {
    if (ports === 'any' && includesWorld(peers)) return undefined;
    return `does not hold for what is reached through a Service: ${JUDGED}; ${DENY}`;
  }
  if (peers === 'any' || peers.some(isAll)) return undefined;
  if (peers.some((peer) => isWorld(peer) || hasExcept(peer) || isPrivateRange(peer))) {
    return `reaches pods and excepted addresses through every Service whose address it covers: ${JUDGED}; except that address, or deny it by toCIDR`;
  }
  if (open || !peers.some(standsForPods)) return undefined;
  return `does not allow these pods' Services: ${JUDGED}; allow that address by toCIDR, too, or use headless Services`;
}

function allowsWorld({ direction, verdict, peers, ports }: RuleElement): boolean {
  return direction === 'egress' && verdict === 'allow' && ports === 'any' && includesWorld(peers);
}

function includesWorld(peers: RuleElement['peers']): boolean {
  return peers === 'any' || peers.some((peer) => isAll(peer) || (isWorld(peer) && !hasExcept(peer)));
}

function isAll(peer: RulePeer): boolean {
  return peer.kind === 'entity' && peer.entity === 'all';
}

function isNobody(peer: RulePeer): boolean {
  return peer.kind === 'entity' && peer.entity === 'none';
}

function isWorld(peer: RulePeer): boolean {
  if (peer.kind === 'cidr') return peer.cidr.cidr === '0.0.0.0/0';
  return peer.kind === 'entity' && WORLDS.has(peer.entity);
}

function hasExcept(peer: RulePeer): boolean {
  return peer.kind === 'cidr' && peer.cidr.except.length > 0;
}

/** Of more than one private address: a cluster's Services may be among them. */
function isPrivateRange(peer: RulePeer): boolean {
  if (peer.kind !== 'cidr') return false;
  const cidr = parsePrefix(peer.cidr.cidr);
  return cidr.bits < 32 && PRIVATE.some((range) => overlap(range, cidr));
}

function overlap(a: Prefix, b: Prefix): boolean {
  return prefixContains(a, b) || prefixContains(b, a);
}

function standsForPods(peer: RulePeer): boolean {
  return peer.kind === 'endpoints' || (peer.kind === 'entity' && peer.entity === 'cluster');
}
