/** Whom an edit of rules concerns, where that is a few. Most of a list of peers is as it was: only what is between its ends that are is looked at closely. */
import type { PeerRef, Pieces, ResolvedRule, SelectorHash } from './types.ts';

/** Rules and peers of a piece: some ten microseconds. */
const PIECE = 64;

/** Members of the sets, and addresses within the CIDRs. */
export interface RuleChanges {
  readonly peerSets: ReadonlySet<SelectorHash>;
  readonly cidrs: ReadonlySet<string>;
}

/** CIDRs and exceptions that only one of two lists of rules names. */
export interface ChangedCidrs {
  readonly cidrs: ReadonlySet<string>;
  /** Those that are named now. */
  readonly named: ReadonlySet<string>;
}

interface Noted {
  readonly peerSets: Set<SelectorHash>;
  readonly cidrs: Set<string>;
}

/**
 * Whom rules that are new, gone or edited concern; undefined: it may be everybody. Linear in the rules and their peers. Rules may come in any
 * order.
 */
export function* changesOf(
  before: readonly ResolvedRule[],
  after: readonly ResolvedRule[],
): Pieces<RuleChanges | undefined> {
  const changes: Noted = { peerSets: new Set(), cidrs: new Set() };
  const come = new Map<string, ResolvedRule[]>();
  let done = 0;
  for (const rule of after) {
    const key = allButPeers(rule);
    const same = come.get(key);
    if (same === undefined) come.set(key, [rule]);
    else same.push(rule);
    if (++done % PIECE === 0) yield;
  }
  for (const rule of before) {
    // Of rules that differ in their peers alone, those that they have in common are not concerned.
    const same = come.get(allButPeers(rule))?.pop();
    if (!(yield* note(changes, rule.peers, same === undefined ? [] : same.peers))) return undefined;
    if (++done % PIECE === 0) yield;
  }
  for (const fresh of come.values())
    for (const { peers } of fresh) {
      if (!(yield* note(changes, [], peers))) return undefined;
      if (++done % PIECE === 0) yield;
    }
  return changes;
}

/** Every CIDR and except that rules name; those of everyone, which are no identities, on demand. */
export function cidrsOf(rules: readonly ResolvedRule[], { everyone = false } = {}): string[] {
  const found: string[] = [];
  for (const { peers = [] } of rules)
    for (const peer of peers)
      if ('cidr' in peer && (everyone || peer.everyone !== true)) {
        found.push(peer.cidr);
        // There may be very many peers: no arrays for each.
        for (const cidr of peer.except ?? []) found.push(cidr);
      }
  return found;
}

/** Whether rules name the CIDR, as such or as an exception. */
export function namesCidr(rules: readonly ResolvedRule[], cidr: string): boolean {
  for (const { peers = [] } of rules)
    for (const peer of peers)
      if ('cidr' in peer && peer.everyone !== true && (peer.cidr === cidr || peer.except?.includes(cidr) === true))
        return true;
  return false;
}

export function changedCidrs(before: readonly ResolvedRule[], after: readonly ResolvedRule[]): ChangedCidrs {
  const [had, has] = [cidrsOf(before), cidrsOf(after)];
  const looked = new Set(between(had, has, Object.is).flat());
  const among = (all: readonly string[]): ReadonlySet<string> => new Set(all.filter((cidr) => looked.has(cidr)));
  const named = among(has);
  return { cidrs: among(had).symmetricDifference(named), named };
}

function allButPeers(rule: ResolvedRule): string {
  const {
    peers: _,
    labels: __,
    subject,
    direction,
    verdict,
    ports,
    dns,
    defaultDeny,
    cookie,
    path,
    log,
    ...others
  } = rule;
  // A field that is added has to be compared. Labels decide nothing.
  others satisfies Record<string, never>;
  return JSON.stringify([subject, direction, verdict, ports, dns, defaultDeny, cookie, path, log]);
}

/** Notes what is among the one and not among the other; false where that tells of others than members of sets and addresses in CIDRs. */
function* note(
  changes: Noted,
  before: readonly PeerRef[] | undefined,
  after: readonly PeerRef[] | undefined,
): Pieces<boolean> {
  if (before === undefined || after === undefined) return before === after;
  const [some, others] = between(before, after, samePeer);
  yield;
  const [had, has] = [yield* byText(some), yield* byText(others)];
  let done = 0;
  for (const [some, others] of [
    [had, has],
    [has, had],
  ] as const)
    for (const [text, peer] of some) {
      if (++done % PIECE === 0) yield;
      if (others.has(text)) continue;
      if ('entity' in peer || 'fqdn' in peer) return false;
      if ('peerSet' in peer) changes.peerSets.add(peer.peerSet);
      // Those of the whole family are of the world that nobody knows more of; those of everyone are of no identity.
      else if (peer.cidr.endsWith('/0') || peer.everyone === true) return false;
      else changes.cidrs.add(peer.cidr);
    }
  return true;
}

/** The two lists without what both begin and both end with. */
function between<T>(a: readonly T[], b: readonly T[], same: (a: T, b: T) => boolean): readonly [T[], T[]] {
  const [mostA, mostB] = [a.length, b.length];
  const alike = (atA: number, atB: number): boolean => same(a[atA] as T, b[atB] as T);
  let begin = 0;
  while (begin < mostA && begin < mostB && alike(begin, begin)) begin += 1;
  let end = 0;
  while (end < mostA - begin && end < mostB - begin && alike(mostA - 1 - end, mostB - 1 - end)) end += 1;
  return [a.slice(begin, mostA - end), b.slice(begin, mostB - end)];
}

function samePeer(a: PeerRef, b: PeerRef): boolean {
  if ('peerSet' in a) return 'peerSet' in b && a.peerSet === b.peerSet;
  if ('entity' in a) return 'entity' in b && a.entity === b.entity;
  if ('fqdn' in a) return 'fqdn' in b && a.fqdn === b.fqdn;
  return 'cidr' in b && a.cidr === b.cidr && a.everyone === b.everyone && sameList(a.except ?? [], b.except ?? []);
}

function sameList(a: readonly string[], b: readonly string[]): boolean {
  return a.length === b.length && a.every((text, at) => text === b[at]);
}

function* byText(peers: readonly PeerRef[]): Pieces<ReadonlyMap<string, PeerRef>> {
  const found = new Map<string, PeerRef>();
  let done = 0;
  for (const peer of peers) {
    found.set(textOf(peer), peer);
    if (++done % PIECE === 0) yield;
  }
  return found;
}

function textOf(peer: PeerRef): string {
  if ('peerSet' in peer) return `set ${peer.peerSet}`;
  if ('entity' in peer) return `entity ${peer.entity}`;
  if ('fqdn' in peer) return `names ${peer.fqdn}`;
  const cidr = peer.everyone === true ? `everyone ${peer.cidr}` : peer.cidr;
  return peer.except === undefined || peer.except.length === 0 ? cidr : `${cidr} ${peer.except.join()}`;
}
