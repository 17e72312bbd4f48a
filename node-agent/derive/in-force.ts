import { type LabelMap, labelsKey, matches } from '@weir/labels';
import type { SelectorHash } from '@weir/policy';
import { type Key, keys, query, type StateDB } from '@weir/statedb';
import { tableKey } from '../create-tables.ts';
import type { EndpointStateRow } from '../tables.ts';
import type { IpcacheDeriver } from './ipcache.ts';
import type { Pace } from './pace.ts';
import type { InUse, Policies } from './policies.ts';
import type { RuleGroup } from './rule-groups.ts';
import { Rows } from './working.ts';

/** CIDRs that are noted at once: some milliseconds. */
const SLICE = 500;

/** An identity of this node's pods. In the table it is another object whenever the rules in force that select it may be others. */
export interface Subject {
  readonly identity: number;
  readonly labels: LabelMap;
}

interface SelectionKey {
  readonly identity: number;
  readonly uid: string;
}

/** Generations of policies, by uid. */
export type Judging = EndpointStateRow['policies'];
export const NO_POLICIES: Judging = {};
/** A subject stands for the rules that select it: what was found of it holds. */
const POLICIES_OF = new WeakMap<Subject, Judging>();

/** A policy of which some rules select a subject. */
interface Selection extends SelectionKey {
  /** Of the rules that select it: subjects of their groups. */
  readonly groups: readonly SelectorHash[];
}

export interface InForceOptions {
  readonly db: StateDB;
  readonly policies: Policies;
  readonly ipcache: Pick<IpcacheDeriver, 'setRuleCidr'>;
  readonly pace: Pace;
}

/** Which rules in force select which identities of this node's pods, and which CIDRs they name. */
export class InForce {
  readonly #options: InForceOptions;
  readonly #subjects: Rows<number, Subject>;
  readonly #selections: Rows<SelectionKey, Selection>;
  readonly #dirtyCidrs = new Set<string>();

  constructor(options: InForceOptions) {
    this.#options = options;
    const { db } = options;
    this.#subjects = new Rows<number, Subject>(
      db,
      { name: 'subjects', key: ({ identity }) => tableKey.identity(identity) },
      tableKey.identity,
    );
    this.#selections = new Rows<SelectionKey, Selection>(db, { name: 'selections', key: keyOf }, keyOf);
  }

  /** Brings into force what is complete. `dirtyHashes`: PeerSets whose selectors changed. */
  async settle(dirtyHashes: Iterable<SelectorHash>): Promise<void> {
    const { policies, ipcache, pace } = this.#options;
    for (const { uid, after, cidrs, named } of policies.settle()) {
      for (const slice of slices(cidrs)) {
        policies.nameCidrs(uid, slice, named);
        for (const cidr of slice) this.#dirtyCidrs.add(cidr);
        if (pace.due()) await pace.yieldNow();
      }
      this.#select(uid, after);
      if (pace.due()) await pace.yieldNow();
    }
    for (const cidr of this.#dirtyCidrs) {
      this.#dirtyCidrs.delete(cidr);
      ipcache.setRuleCidr(cidr, policies.namesCidr(cidr));
      if (pace.due()) await pace.yieldNow();
    }
    for (const hash of dirtyHashes) {
      for (const inUse of policies.inUseNaming(hash)) {
        this.#select(inUse.row.uid, inUse);
        if (pace.due()) await pace.yieldNow();
      }
    }
  }

  /** Brings the identities that are looked at up to date with `wanted`, which may repeat themselves. */
  async settleSubjects(wanted: Iterable<Subject>): Promise<void> {
    const { db, policies, pace } = this.#options;
    const [subjects, selections] = [this.#subjects.table, this.#selections.table];
    const used = new Set<number>();
    for (const { identity, labels } of wanted) {
      used.add(identity);
      const known = this.#subjects.get(identity)?.labels;
      // A number may be given to other labels later.
      if (known === labels || (known !== undefined && labelsKey(known) === labelsKey(labels))) continue;
      const subject = { identity, labels };
      const selected: Selection[] = [];
      for (const inUse of policies.allInUse()) {
        const groups = this.#selected(inUse, subject);
        if (groups.length > 0) selected.push({ identity, uid: inUse.row.uid, groups });
        if (pace.due()) await pace.yieldNow();
      }
      db.write([subjects, selections], (txn) => {
        txn.upsert(subjects, subject);
        for (const selection of txn.prefix(selections, ofIdentity(identity))) txn.delete(selections, keyOf(selection));
        for (const selection of selected) txn.insert(selections, selection);
      });
    }
    for (const { identity } of this.#subjects.values()) {
      if (used.has(identity)) continue;
      db.write([subjects, selections], (txn) => {
        txn.delete(subjects, tableKey.identity(identity));
        for (const selection of txn.prefix(selections, ofIdentity(identity))) txn.delete(selections, keyOf(selection));
      });
    }
  }

  /** What stands for the rules in force that select the identity, as of the last plan: the same object while they are the same. */
  subject(identity: number): Subject | undefined {
    return this.#subjects.get(identity);
  }

  /** Generations of the policies of which some rule selects the identity, by uid: the same object for the same subject. */
  policiesOf(subject: Subject): Judging {
    const known = POLICIES_OF.get(subject);
    if (known !== undefined) return known;
    const found: Record<string, number> = {};
    for (const { uid } of this.#of(subject.identity)) {
      const generation = this.#options.policies.inUse(uid)?.row.generation;
      if (generation !== undefined) found[uid] = generation;
    }
    POLICIES_OF.set(subject, found);
    return found;
  }

  /** Rules that select the identity, by groups, each with its policy. */
  *groups(identity: number): Generator<readonly [InUse, RuleGroup]> {
    for (const { uid, groups } of this.#of(identity)) {
      const inUse = this.#options.policies.inUse(uid);
      for (const group of inUse?.groups ?? []) if (inUse && groups.includes(group.subject)) yield [inUse, group];
    }
  }

  #of(identity: number): Iterable<Selection> {
    return this.#selections.select(query.prefix(this.#selections.table, ofIdentity(identity)));
  }

  /** Finds the subjects that the policy selects, after its rules or what they select by have changed. */
  #select(uid: string, inUse: InUse | undefined): void {
    const [subjects, selections] = [this.#subjects.table, this.#selections.table];
    this.#options.db.write([subjects, selections], (txn) => {
      for (const subject of [...txn.all(subjects)]) {
        const groups = inUse === undefined ? [] : this.#selected(inUse, subject);
        const selection = { identity: subject.identity, uid, groups };
        if (groups.length > 0) txn.upsert(selections, selection);
        else if (txn.delete(selections, keyOf(selection)) === undefined) continue;
        txn.upsert(subjects, { ...subject });
      }
    });
  }

  /** Subjects of the policy's groups that select this one. Its labels say so, whatever the sets list. */
  #selected({ groups }: InUse, { labels }: Subject): readonly SelectorHash[] {
    return groups.flatMap(({ subject }) => {
      const set = this.#options.policies.view(subject);
      return set !== undefined && matches(set.selector, labels) ? [subject] : [];
    });
  }
}

function keyOf({ identity, uid }: SelectionKey): Key {
  return keys.join(keys.uint(identity, 32), uid);
}

/** What the keys of an identity's selections begin with. */
function ofIdentity(identity: number): Key {
  return keys.join(keys.uint(identity, 32));
}

function* slices(cidrs: Iterable<string>): Generator<readonly string[]> {
  let slice: string[] = [];
  for (const cidr of cidrs) {
    if (slice.push(cidr) < SLICE) continue;
    yield slice;
    slice = [];
  }
  if (slice.length > 0) yield slice;
}
