/** Whom an edit of rules concerns, where that is a few. */
import { compareText } from '@weir/labels';
import type { PeerRef, ResolvedRule, SelectorHash } from './types.ts';

/** Members of the sets, and addresses within the CIDRs. */
export interface RuleChanges {
  readonly peerSets: ReadonlySet<SelectorHash>;
  readonly cidrs: ReadonlySet<string>;
}

/**
 * Whom rules that are new, gone or edited concern; undefined: it may be everybody. Linear in the rules, and in the peers of those that are not the
 * same objects. Rules may come in any order.
 */
export function changesOf(before: readonly ResolvedRule[], after: readonly ResolvedRule[]): RuleChanges | undefined {
  const [had, has] = [new Set(before), new Set(after)];
  const changes = { peerSets: new Set<SelectorHash>(), cidrs: new Set<string>() };
  const come = Map.groupBy(has.difference(had), allButPeers);
  for (const old of had.difference(has)) {
    // Of rules that differ in their peers alone, those that they have in common are not concerned.
    const same = come.get(allButPeers(old))?.pop();
    if (!note(changes, old.peers, same === undefined ? [] : same.peers)) return undefined;
  }
  for (const fresh of come.values()) for (const { peers } of fresh) if (!note(changes, [], peers)) return undefined;
  return changes;
}

function allButPeers({ peers: _, ...rule }: ResolvedRule): string {
  return JSON.stringify(Object.entries(rule).sort(([a], [b]) => compareText(a, b)));
}

/** Notes what is among the one and not among the other; false where that tells of others than members of sets and addresses in CIDRs. */
function note(
  changes: { readonly peerSets: Set<SelectorHash>; readonly cidrs: Set<string> },
  before: readonly PeerRef[] | undefined,
  after: readonly PeerRef[] | undefined,
): boolean {
  if (before === undefined || after === undefined) return before === after;
  const [had, has] = [byText(before), byText(after)];
  for (const [some, others] of [
    [had, has],
    [has, had],
  ] as const)
    for (const [text, peer] of some) {
      if (others.has(text)) continue;
      if ('entity' in peer) return false;
      if ('peerSet' in peer) changes.peerSets.add(peer.peerSet);
      // Those of the whole family are of the world that nobody knows more of.
      else if (peer.cidr.endsWith('/0')) return false;
      else changes.cidrs.add(peer.cidr);
    }
  return true;
}

function byText(peers: readonly PeerRef[]): ReadonlyMap<string, PeerRef> {
  return new Map(peers.map((peer) => [textOf(peer), peer]));
}

function textOf(peer: PeerRef): string {
  if ('peerSet' in peer) return `set ${peer.peerSet}`;
  if ('entity' in peer) return `entity ${peer.entity}`;
  return peer.except === undefined || peer.except.length === 0 ? peer.cidr : `${peer.cidr} ${peer.except.join()}`;
}
