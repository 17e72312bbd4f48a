import { createHash } from 'node:crypto';
import type { ResolvedRule, SelectorHash } from '@weir/policy';
import type { PeerSetRow, PolicyRow } from '../tables.ts';
import { Multi } from './multi.ts';

/** A policy in force, with what is needed of it again and again. */
export interface InUse {
  readonly row: PolicyRow;
  /** Content hash of each rule, by index. */
  readonly ruleKeys: readonly string[];
}

/** Why a policy's newest generation is not in use. */
export interface Missing {
  readonly uid: string;
  readonly generation: number;
  readonly hashes: readonly SelectorHash[];
  readonly sinceMs: number;
}

/** The PeerSets that a policy names, as subjects and as peers. */
export function hashesOf(row: PolicyRow): Set<SelectorHash> {
  const out = new Set<SelectorHash>();
  for (const rule of row.rules) {
    out.add(rule.subject);
    for (const peer of rule.peers ?? []) if ('peerSet' in peer) out.add(peer.peerSet);
  }
  return out;
}

/** Every CIDR and except that a rule names. */
export function cidrsOf(rule: ResolvedRule): string[] {
  return (rule.peers ?? []).flatMap((peer) => ('cidr' in peer ? [peer.cidr, ...(peer.except ?? [])] : []));
}

function ruleKey(rule: ResolvedRule): string {
  return createHash('sha1').update(JSON.stringify(rule)).digest('base64');
}

/**
 * Which generation of each policy is in force: the newest whose PeerSets are all here. Until then the one before stays,
 * with the PeerSets it had even when the cluster has dropped them.
 */
export class Policies {
  readonly #rows = new Map<string, PolicyRow>();
  readonly #peerSets = new Map<SelectorHash, PeerSetRow>();
  readonly #retained = new Map<SelectorHash, PeerSetRow>();
  readonly #naming = new Multi<SelectorHash, string>();
  readonly #inUse = new Map<string, InUse>();
  readonly #inUseNaming = new Multi<SelectorHash, string>();
  readonly #missing = new Map<string, Missing>();
  readonly #dirty = new Set<string>();
  readonly #now: () => number;

  constructor(now: () => number) {
    this.#now = now;
  }

  setPolicy(row: PolicyRow | undefined, uid: string): void {
    const before = this.#rows.get(uid);
    if (before) for (const hash of hashesOf(before)) this.#naming.delete(hash, uid);
    if (row) {
      for (const hash of hashesOf(row)) this.#naming.add(hash, uid);
      this.#rows.set(uid, row);
    } else this.#rows.delete(uid);
    this.#dirty.add(uid);
  }

  /** Returns the row that was there. */
  setPeerSet(row: PeerSetRow | undefined, hash: SelectorHash): PeerSetRow | undefined {
    const before = this.#peerSets.get(hash);
    if (row) {
      this.#peerSets.set(hash, row);
      this.#retained.delete(hash);
    } else {
      this.#peerSets.delete(hash);
      if (before && this.#inUseNaming.has(hash)) this.#retained.set(hash, before);
    }
    if ((before === undefined) !== (row === undefined)) for (const uid of this.#naming.get(hash)) this.#dirty.add(uid);
    return before;
  }

  /** The set as the table has it. */
  present(hash: SelectorHash): PeerSetRow | undefined {
    return this.#peerSets.get(hash);
  }

  /** The set as policies in force see it. */
  view(hash: SelectorHash): PeerSetRow | undefined {
    return this.#peerSets.get(hash) ?? this.#retained.get(hash);
  }

  inUse(uid: string): InUse | undefined {
    return this.#inUse.get(uid);
  }

  allInUse(): IterableIterator<[string, InUse]> {
    return this.#inUse.entries();
  }

  /** Policies in force that name the set, as subject or peer. */
  inUseNaming(hash: SelectorHash): Iterable<string> {
    return this.#inUseNaming.get(hash);
  }

  /** PeerSets that policies wait for of which no generation is in force. Known before `settle`. */
  *awaited(): Generator<readonly [SelectorHash, PolicyRow]> {
    for (const [uid, row] of this.#rows) {
      if (this.#inUse.has(uid)) continue;
      for (const hash of hashesOf(row)) if (!this.#peerSets.has(hash)) yield [hash, row];
    }
  }

  missing(): Iterable<Missing> {
    return this.#missing.values();
  }

  /** Brings what is in force up to date; yields each policy whose rules in force changed, as [uid, before, after]. */
  *settle(): Generator<readonly [uid: string, before: InUse | undefined, after: InUse | undefined]> {
    for (const uid of this.#dirty) {
      this.#dirty.delete(uid);
      const row = this.#rows.get(uid);
      const before = this.#inUse.get(uid);
      if (row === undefined) {
        this.#missing.delete(uid);
        if (!before) continue;
        this.#swap(uid, before, undefined);
        yield [uid, before, undefined];
        continue;
      }
      const absent = [...hashesOf(row)].filter((hash) => !this.#peerSets.has(hash)).sort();
      if (absent.length > 0) {
        const sinceMs = this.#missing.get(uid)?.sinceMs ?? this.#now();
        this.#missing.set(uid, { uid, generation: row.generation, hashes: absent, sinceMs });
        continue;
      }
      this.#missing.delete(uid);
      if (before?.row === row) continue;
      const after: InUse = { row, ruleKeys: row.rules.map(ruleKey) };
      this.#swap(uid, before, after);
      yield [uid, before, after];
    }
  }

  #swap(uid: string, before: InUse | undefined, after: InUse | undefined): void {
    if (after) for (const hash of hashesOf(after.row)) this.#inUseNaming.add(hash, uid);
    if (after) this.#inUse.set(uid, after);
    else this.#inUse.delete(uid);
    if (!before) return;
    const kept = after ? hashesOf(after.row) : new Set<string>();
    for (const hash of hashesOf(before.row)) {
      if (kept.has(hash)) continue;
      this.#inUseNaming.delete(hash, uid);
      if (!this.#inUseNaming.has(hash)) this.#retained.delete(hash);
    }
  }
}
