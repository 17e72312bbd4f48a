/**
 * How many pods that a policy selects are on each node.
 *
 * Guarantees: counted when a policy's status asks first, kept from then on with each pod that comes, goes or moves, and
 * forgotten with the last policy of these subjects. So a fold costs the nodes that host a selected pod, not the identities
 * that are selected, and policies that select the same pods share one count. A pod that comes or goes is matched against the selectors that are
 * counted, whoever has listed it by now; however many others there are, it costs nothing.
 *
 * Relies on the other books: an identity is known before its first pod has an address, and until its last one has gone; what a selector
 * matches never changes.
 */
import { type AnyTable, keys, type Reader, type StateDB, type Table, type WriteTxn } from '@weir/statedb';
import type { Census, Count, Resident } from './census.ts';
import { Marks } from './marks.ts';
import { type PolicyBook, subjectsKey } from './policy-book.ts';
import type { SelectorIndex } from './selector-index.ts';
import { matching, type SelectorRow, WANTS } from './selector-wants.ts';

type Subjects = ReadonlySet<string>;

/** The sets, by hash, whose members one policy selects, or several that select alike. */
interface Group {
  readonly id: string;
  readonly subjects: Subjects;
}

/** Pods of a group on one node. */
interface Hosted extends Count {
  readonly group: string;
  readonly node: string;
}

export interface SubjectHostsSources {
  readonly policies: PolicyBook;
  readonly sets: SelectorIndex;
  readonly census: Census;
}

export class SubjectHosts {
  readonly #sources: SubjectHostsSources;
  /** Those that are counted. */
  readonly #groups: Table<Group>;
  readonly #hosted: Table<Hosted>;
  /** Of their subjects. */
  readonly #selectors: Table<SelectorRow>;
  /** Groups of which pods have come, gone or moved. */
  readonly #moved = new Marks<string>();

  constructor(db: StateDB, sources: SubjectHostsSources) {
    this.#sources = sources;
    this.#groups = db.table<Group>({
      name: 'countedSubjects',
      key: ({ id }) => id,
      indexes: [{ name: 'set', keys: ({ subjects }) => subjects }],
    });
    this.#hosted = db.table<Hosted>({
      name: 'subjectHosts',
      key: hostedKey,
      indexes: [{ name: 'node', keys: ({ node }) => [node] }],
    });
    this.#selectors = db.table<SelectorRow>({ name: 'countedSelectors', key: ({ hash }) => hash, indexes: [WANTS] });
  }

  get tables(): readonly AnyTable[] {
    return [this.#groups, this.#hosted, this.#selectors];
  }

  /** By node: pods that are members of at least one of the subjects. */
  *of(txn: WriteTxn, subjects: Subjects): Generator<readonly [node: string, count: Count]> {
    const id = subjectsKey(subjects);
    if (!txn.has(this.#groups, id)) this.#count(txn, { id, subjects });
    for (const hosted of this.#hostedIn(txn, id)) yield [hosted.node, hosted];
  }

  /** Keys of the policies whose status has asked, and that select a pod on the node. */
  *policiesOn(reader: Reader, node: string): Generator<string> {
    for (const { group } of reader.list(this.#hosted, 'node', node))
      yield* this.#sources.policies.withSubjects(reader, group);
  }

  /** Keys of the policies whose status has asked, and of whose pods some have come, gone or moved in this transaction since the last call. */
  *takeMoved(txn: WriteTxn): Generator<string> {
    for (const group of this.#moved.take(txn)) yield* this.#sources.policies.withSubjects(txn, group);
  }

  /** A pod has come (`by` 1) or gone (-1); the census has counted it. */
  move(txn: WriteTxn, { identity, node, leaving }: Resident, by: 1 | -1): void {
    if (node === undefined || txn.count(this.#groups) === 0) return;
    for (const group of this.#groupsOf(txn, identity)) {
      const none = { group, node, staying: 0, leaving: 0 };
      const known = txn.get(this.#hosted, hostedKey(none)) ?? none;
      const count = leaving ? { ...known, leaving: known.leaving + by } : { ...known, staying: known.staying + by };
      if (count.staying + count.leaving === 0) txn.delete(this.#hosted, hostedKey(count));
      else txn.upsert(this.#hosted, count);
      this.#moved.add(txn, group);
    }
  }

  /** A policy does not have these subjects any more. */
  release(txn: WriteTxn, subjects: Subjects): void {
    const id = subjectsKey(subjects);
    if (!txn.has(this.#groups, id)) return;
    for (const _ of this.#sources.policies.withSubjects(txn, id)) return;
    txn.delete(this.#groups, id);
    for (const hash of subjects) if (this.#groupsBy(txn, hash).next().done === true) txn.delete(this.#selectors, hash);
    for (const hosted of this.#hostedIn(txn, id)) txn.delete(this.#hosted, hostedKey(hosted));
  }

  #count(txn: WriteTxn, group: Group): void {
    const { sets, census } = this.#sources;
    const identities = new Set<number>();
    for (const hash of group.subjects) for (const identity of sets.matched(txn, hash)) identities.add(identity);
    const counts = new Map<string, { staying: number; leaving: number }>();
    for (const identity of identities) {
      for (const [node, { staying, leaving }] of census.of(txn, identity)) {
        const count = counts.get(node) ?? { staying: 0, leaving: 0 };
        count.staying += staying;
        count.leaving += leaving;
        counts.set(node, count);
      }
    }
    txn.insert(this.#groups, group);
    for (const hash of group.subjects) {
      const selector = sets.selector(txn, hash);
      if (selector !== undefined && !txn.has(this.#selectors, hash)) txn.insert(this.#selectors, { hash, selector });
    }
    for (const [node, count] of counts) txn.insert(this.#hosted, { group: group.id, node, ...count });
  }

  #groupsOf(reader: Reader, identity: number): Set<string> {
    const groups = new Set<string>();
    const labels = this.#sources.sets.labels(reader, identity);
    for (const { hash } of labels === undefined ? [] : matching(reader, this.#selectors, labels))
      for (const { id } of this.#groupsBy(reader, hash)) groups.add(id);
    return groups;
  }

  #groupsBy(reader: Reader, hash: string): IterableIterator<Group> {
    return reader.list(this.#groups, 'set', hash);
  }

  #hostedIn(reader: Reader, group: string): Iterable<Hosted> {
    return reader.prefix(this.#hosted, keys.join(group));
  }
}

function hostedKey({ group, node }: Pick<Hosted, 'group' | 'node'>): string {
  return keys.join(group, node);
}
