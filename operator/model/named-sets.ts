import type { ResolvedRule } from '@weir/policy';

/** Hashes of every peer set that rules name, subjects too. */
export function hashesOf(rules: readonly ResolvedRule[]): Set<string> {
  const hashes = new Set<string>();
  for (const rule of rules) {
    hashes.add(rule.subject);
    for (const peer of rule.peers ?? []) if ('peerSet' in peer) hashes.add(peer.peerSet);
  }
  return hashes;
}
