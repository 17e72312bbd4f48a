import { type Prefix, parsePrefix, prefixContains } from '@weir/net';
import type { Direction, PeerIdentity, ResolvedRule, SelectorHash, Steps } from '@weir/policy';

/** Peers that rules of a direction are about, by their sets and CIDRs, and that are not among those known; ascending. */
export function* newPeers(
  rules: readonly ResolvedRule[],
  direction: Direction,
  known: ReadonlyMap<number, unknown>,
  world: { members(hash: SelectorHash): Iterable<number> | undefined; identities(): Iterable<PeerIdentity> },
): Steps<number[]> {
  const found = new Set<number>();
  const cidrs: Prefix[] = [];
  const sets = new Set<SelectorHash>();
  for (const rule of rules) {
    if (rule.direction !== direction) continue;
    for (const peer of rule.peers ?? []) {
      if ('peerSet' in peer) sets.add(peer.peerSet);
      else if ('cidr' in peer) cidrs.push(parsePrefix(peer.cidr));
    }
  }
  for (const hash of sets) {
    for (const id of world.members(hash) ?? []) if (!known.has(id)) found.add(id);
    yield;
  }
  for (const { id, cidr } of cidrs.length === 0 ? [] : world.identities()) {
    if (cidr === undefined || known.has(id)) continue;
    const prefix = parsePrefix(cidr);
    if (cidrs.some((each) => prefixContains(each, prefix))) found.add(id);
    yield;
  }
  return [...found].sort((a, b) => a - b);
}
