import { isDeepStrictEqual } from 'node:util';
import { type LabelMap, matches, NAMESPACE_LABEL } from '@weir/labels';
import { type ChangedCidrs, changedCidrs, type ResolvedRule, type SelectorHash } from '@weir/policy';
import { type Key, keys, query, type StateDB } from '@weir/statedb';
import type { Tables } from '../core.ts';
import { peerSetsOf } from '../create-tables.ts';
import type { PeerSetRow, PolicyRow } from '../tables.ts';
import type { Inputs } from './inputs.ts';
import { groupsOf, type RuleGroup } from './rule-groups.ts';
import { Rows } from './working.ts';

/** A policy in force, with what is needed of it again and again. */
export interface InUse {
  readonly row: PolicyRow;
  readonly groups: readonly RuleGroup[];
}

/** A CIDR (or except) that a policy in force names. */
interface NamedCidr {
  readonly cidr: string;
  readonly uid: string;
}

/** A policy whose rules in force have changed, and the CIDRs that only one of the two names. */
export interface Settled extends ChangedCidrs {
  readonly uid: string;
  readonly after: InUse | undefined;
}

/** Why a policy's newest generation is not in use. */
export interface Missing {
  readonly uid: string;
  readonly generation: number;
  readonly hashes: readonly SelectorHash[];
  readonly sinceMs: number;
}

export interface PoliciesOptions {
  readonly db: StateDB;
  readonly tables: Pick<Tables, 'policies' | 'peerSets'>;
  readonly inputs: Pick<Inputs, 'snapshot'>;
  /** Whether some slot is compiled from the set, be it of rules that are no longer here. */
  readonly compiled: (hash: SelectorHash) => boolean;
  /** Milliseconds; any clock that only grows. */
  readonly now: () => number;
}

/** Hashes of sets and names of entities that rules name as peers. */
function* peersOf({ rules }: PolicyRow): Generator<string> {
  for (const { peers } of rules)
    for (const peer of peers ?? []) {
      if ('peerSet' in peer) yield peer.peerSet;
      else if ('entity' in peer) yield peer.entity;
    }
}

/**
 * Which generation of each policy is in force: the newest whose PeerSets are all here. Until then the one before stays,
 * with the PeerSets it had even when the cluster has dropped them.
 */
export class Policies {
  readonly #options: PoliciesOptions;
  readonly #inForce: Rows<string, InUse>;
  /** By CIDR, policies in force that name it: a policy may name very many, of which an edit changes few. */
  readonly #cidrs: Rows<NamedCidr, NamedCidr>;
  /** Sets that policies in force and slots name, as they were when the cluster dropped them. */
  readonly #retained: Rows<SelectorHash, PeerSetRow>;
  readonly #missing: Rows<string, Missing>;
  readonly #dirty = new Set<string>();

  constructor(options: PoliciesOptions) {
    this.#options = options;
    const { db } = options;
    const indexes = [
      { name: 'peerSet', keys: ({ row }: InUse) => peerSetsOf(row) },
      { name: 'peer', keys: ({ row }: InUse) => new Set(peersOf(row)) },
    ];
    this.#inForce = new Rows(db, { name: 'rulesInForce', key: ({ row }) => row.uid, indexes }, (uid) => uid);
    this.#cidrs = new Rows(db, { name: 'namedCidrs', key: namedCidrKey }, namedCidrKey);
    this.#retained = new Rows(db, { name: 'retainedPeerSets', key: ({ hash }) => hash }, (hash) => hash);
    this.#missing = new Rows(db, { name: 'missingPolicies', key: ({ uid }) => uid }, (uid) => uid);
  }

  policyChanged(uid: string): void {
    this.#dirty.add(uid);
  }

  /**
   * Whether the set selects by other labels now, which no set of the operator's ever does. Call it while the snapshot is the one of
   * before: of policies that did not name the set then, `policyChanged` tells.
   */
  peerSetChanged({ hash, selector }: PeerSetRow, deleted: boolean): boolean {
    const { inputs, tables } = this.#options;
    const before = this.present(hash);
    if ((before === undefined) !== deleted) {
      for (const { uid } of inputs.snapshot.list(tables.policies, 'peerSet', hash)) this.#dirty.add(uid);
      if (before && this.#named(hash)) this.#retained.set(before);
    }
    return !isDeepStrictEqual(this.view(hash)?.selector, selector);
  }

  /** Whether `settle` has policies to look at. */
  get pending(): boolean {
    return this.#dirty.size > 0;
  }

  /** A policy that may select pods of these labels, and of which no generation is in force for want of its PeerSets. */
  outstanding(labels: LabelMap): (Missing & { readonly policy: PolicyRow }) | undefined {
    const { inputs, tables } = this.#options;
    for (const missing of this.#missing.values()) {
      const policy = this.#inForce.has(missing.uid) ? undefined : inputs.snapshot.get(tables.policies, missing.uid);
      if (policy === undefined) continue;
      if (policy.namespace !== undefined && policy.namespace !== labels[NAMESPACE_LABEL]) continue;
      const selects = ({ subject }: ResolvedRule): boolean => {
        const set = this.view(subject);
        return set === undefined || matches(set.selector, labels);
      };
      if (policy.rules.some(selects)) return { ...missing, policy };
    }
    return undefined;
  }

  /** The set as the table has it. */
  present(hash: SelectorHash): PeerSetRow | undefined {
    const { inputs, tables } = this.#options;
    return inputs.snapshot.get(tables.peerSets, hash);
  }

  /** The set as what is in force sees it. */
  view(hash: SelectorHash): PeerSetRow | undefined {
    return this.present(hash) ?? this.#retained.get(hash);
  }

  inUse(uid: string): InUse | undefined {
    return this.#inForce.get(uid);
  }

  allInUse(): Iterable<InUse> {
    return this.#inForce.values();
  }

  /** Policies in force that name the set, as subject or peer. */
  inUseNaming(hash: SelectorHash): Iterable<InUse> {
    return this.#inForce.list('peerSet', hash);
  }

  /** Policies in force that name the set, by its hash, or the entity as a peer. */
  inUseWithPeer(peer: string): Iterable<InUse> {
    return this.#inForce.list('peer', peer);
  }

  /** Policies in force that name the CIDR, or except it. */
  *inUseWithCidr(cidr: string): Generator<InUse> {
    for (const { uid } of this.#cidrs.select(query.prefix(this.#cidrs.table, keys.join(cidr)))) {
      const inUse = this.#inForce.get(uid);
      if (inUse !== undefined) yield inUse;
    }
  }

  /** Whether a policy in force names the CIDR. */
  namesCidr(cidr: string): boolean {
    const [some] = this.#cidrs.select(query.prefix(this.#cidrs.table, keys.join(cidr)));
    return some !== undefined;
  }

  /** PeerSets that policies wait for of which no generation is in force. Known before `settle`. */
  *awaited(): Generator<readonly [SelectorHash, PolicyRow]> {
    const { inputs, tables } = this.#options;
    for (const row of inputs.snapshot.all(tables.policies)) {
      if (this.#inForce.has(row.uid)) continue;
      for (const hash of peerSetsOf(row)) if (!this.present(hash)) yield [hash, row];
    }
  }

  missing(): Iterable<Missing> {
    return this.#missing.values();
  }

  /** Brings what is in force up to date; yields each policy whose rules in force changed. */
  *settle(): Generator<Settled> {
    const { inputs, tables, now } = this.#options;
    for (const uid of this.#dirty) {
      this.#dirty.delete(uid);
      const row = inputs.snapshot.get(tables.policies, uid);
      const before = this.#inForce.get(uid);
      if (row === undefined) {
        this.#missing.delete(uid);
        if (!before) continue;
        this.#inForce.delete(uid);
        this.#tidy(before);
        yield { uid, after: undefined, ...changedCidrs(before.row.rules, []) };
        continue;
      }
      const absent = [...peerSetsOf(row)].filter((hash) => !this.present(hash)).sort();
      if (absent.length > 0) {
        const sinceMs = this.#missing.get(uid)?.sinceMs ?? now();
        this.#missing.set({ uid, generation: row.generation, hashes: absent, sinceMs });
        continue;
      }
      this.#missing.delete(uid);
      if (before?.row === row) continue;
      const after: InUse = { row, groups: groupsOf(row) };
      this.#inForce.set(after);
      if (before) this.#tidy(before);
      yield { uid, after, ...changedCidrs(before?.row.rules ?? [], row.rules) };
    }
  }

  /** The policy names these CIDRs, or no longer does. Apply all changes of a `settle` before a lookup. */
  nameCidrs(uid: string, cidrs: Iterable<string>, named: ReadonlySet<string>): void {
    this.#cidrs.write((txn) => {
      for (const cidr of cidrs) {
        const row = { cidr, uid };
        if (named.has(cidr)) txn.upsert(this.#cidrs.table, row);
        else txn.delete(this.#cidrs.table, namedCidrKey(row));
      }
    });
  }

  /** A slot may have ceased to name the set: what nothing in force names need not be kept. */
  namingChanged(hash: SelectorHash): void {
    if (this.#retained.has(hash) && !this.#named(hash)) this.#retained.delete(hash);
  }

  #tidy({ row }: InUse): void {
    for (const hash of peerSetsOf(row)) this.namingChanged(hash);
  }

  #named(hash: SelectorHash): boolean {
    const [some] = this.#inForce.list('peerSet', hash);
    return some !== undefined || this.#options.compiled(hash);
  }
}

function namedCidrKey({ cidr, uid }: NamedCidr): Key {
  return keys.join(cidr, uid);
}
