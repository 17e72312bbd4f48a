import { isDeepStrictEqual } from 'node:util';
import { includesSorted, isNode } from '@weir/identity';
import { type LabelMap, type LabelSelector, matches, NAMESPACE_LABEL } from '@weir/labels';
import { type Pieces, type SelectorHash, selectsNodes } from '@weir/policy';
import { type Key, keys, type StateDB } from '@weir/statedb';
import type { Tables } from '../core.ts';
import type { PeerSetRow } from '../tables.ts';
import { PIECE } from './classes.ts';
import type { Identities } from './identities.ts';
import type { Inputs } from './inputs.ts';
import type { Pace } from './pace.ts';
import type { Policies } from './policies.ts';
import { Rows } from './working.ts';

/** A peer set as this node takes it. */
interface View {
  readonly row: PeerSetRow;
  /** Ascending. The list of `row` itself where labels and list agree, as they nearly always do. */
  readonly members: readonly number[];
  /** Of the list, identities whose labels do not bear it out: they are not known here, or are others. Ascending. */
  readonly doubtful: readonly number[];
}

/** An identity that has other labels or none by now, while the kernel still has addresses of those that it had these labels for. */
interface KeptIdentity {
  readonly id: number;
  readonly labels: LabelMap;
}

/** An identity to look at. */
interface Dirty {
  /** That it was judged by last. */
  readonly labels: LabelMap | undefined;
  /** Its row has changed. Otherwise its former labels were kept, and are no more. */
  readonly changed: boolean;
}

export interface PeerSetViewsOptions {
  readonly db: StateDB;
  readonly tables: Pick<Tables, 'identities'>;
  readonly inputs: Pick<Inputs, 'snapshot'>;
  readonly identities: Pick<Identities, 'get'>;
  readonly policies: Pick<Policies, 'view'>;
  /** Whether rules that are in use name the set as a peer. */
  readonly named: (hash: SelectorHash) => boolean;
  /** Whether some address has the identity, once the current plan is in the kernel. */
  readonly addressed: (identity: number) => boolean;
  readonly pace: Pace;
}

/**
 * The members of each peer set that this node's rules name. A set's selector never changes, as its hash is its name, and an identity's
 * labels neither: so who is a member is known here, whatever the operator has listed by now. Guarantees: an identity whose labels are
 * known is a member if and only if the selector matches them, of sets that the cluster has dropped, too; one whose labels are not known
 * is a member where the operator lists it. An identity that loses its labels, or gets others, is judged by those that it had until the
 * addresses that had it for them are elsewhere. Cost follows the change: an identity is looked at by the sets that its labels may fulfil,
 * a set that is new by the identities of its namespace.
 */
export class PeerSetViews {
  readonly #options: PeerSetViewsOptions;
  readonly #views: Rows<SelectorHash, View>;
  readonly #kept: Rows<number, KeptIdentity>;
  readonly #dirtySets = new Set<SelectorHash>();
  readonly #dirtyIdentities = new Map<number, Dirty>();
  #begun = false;

  constructor(options: PeerSetViewsOptions) {
    this.#options = options;
    this.#views = new Rows<SelectorHash, View>(
      options.db,
      {
        name: 'peerSetViews',
        key: ({ row }) => row.hash,
        indexes: [
          { name: 'wants', keys: ({ row }) => wantedBy(row.selector) },
          { name: 'nodes', keys: ({ row }) => (selectsNodes(row.selector) ? [''] : []) },
          { name: 'doubtful', keys: ({ doubtful }) => doubtful.map(identityKey) },
        ],
      },
      (hash) => hash,
    );
    this.#kept = new Rows(options.db, { name: 'keptIdentities', key: ({ id }) => identityKey(id) }, identityKey);
  }

  /** The set, or whether rules name it, has changed. */
  setChanged(hash: SelectorHash): void {
    this.#dirtySets.add(hash);
  }

  /** Call it while the snapshot is still the one of before the change. */
  identityChanged(id: number): void {
    const labels = this.#dirtyIdentities.has(id) ? this.#dirtyIdentities.get(id)?.labels : this.#labels(id);
    this.#dirtyIdentities.set(id, { labels, changed: true });
  }

  /** Undefined when the set is not known, or no rule names it. */
  members(hash: SelectorHash): readonly number[] | undefined {
    return this.#views.get(hash)?.members;
  }

  /** Whether some set selects nodes by their labels. */
  get selectNodes(): boolean {
    const [some] = this.#views.list('nodes', '');
    return some !== undefined;
  }

  /** Sets that the identity is a member of. `labels`: it is one of this node's own label sets, which no list has. */
  *setsOf(id: number, labels?: LabelMap): Generator<SelectorHash> {
    const views = new Set(this.#views.list('doubtful', identityKey(id)));
    for (const key of wantedOf(labels ?? this.#labels(id) ?? {}))
      for (const view of this.#views.list('wants', key)) views.add(view);
    for (const { row, members } of views)
      if (labels === undefined ? includesSorted(members, id) : mayHold(id, row) && matches(row.selector, labels))
        yield row.hash;
  }

  /** Identities that get other labels with the next plan. Until then no other address may get them. */
  renumbered(): ReadonlySet<number> {
    const { identities } = this.#options;
    const ids = Iterator.from(this.#kept.values()).map(({ id }) => id);
    return new Set(ids.filter((id) => identities.get(id) !== undefined));
  }

  /**
   * Call it when it is known what the current plan makes of the addresses. Releases identities that need not keep their former labels;
   * the next plan judges it again.
   */
  async release(): Promise<boolean> {
    const { identities, addressed, pace } = this.#options;
    let released = false;
    for (const { id, labels } of this.#kept.values()) {
      if (pace.due()) await pace.yieldNow();
      // Which addresses have an identity that means something else by now, this plan has looked at.
      if (identities.get(id) === undefined && addressed(id)) continue;
      this.#kept.delete(id);
      this.#dirtyIdentities.set(id, { labels, changed: false });
      released = true;
    }
    return released;
  }

  /** Takes in what has changed; returns the sets whose members have: who joined or left, undefined for a set that is new. */
  async settle(): Promise<ReadonlyMap<SelectorHash, ReadonlySet<number> | undefined>> {
    const { policies, named, pace } = this.#options;
    await this.#hold();
    const changed = new Map<SelectorHash, ReadonlySet<number> | undefined>();
    const put = (before: View | undefined, after: View): void => {
      if (before === after) return;
      const { hash } = after.row;
      this.#views.set(after);
      // This node's own label sets are members by the selector, and in no list.
      if (before === undefined || !isDeepStrictEqual(before.row.selector, after.row.selector))
        changed.set(hash, undefined);
      else if (before.members !== after.members && !(changed.has(hash) && changed.get(hash) === undefined)) {
        const ids = new Set(difference(before.members, after.members));
        if (ids.size > 0) changed.set(hash, ids.union(changed.get(hash) ?? NOBODY));
      }
    };
    for (const hash of this.#dirtySets) {
      const row = named(hash) ? policies.view(hash) : undefined;
      const before = this.#views.get(hash);
      if (row === undefined) this.#views.delete(hash);
      else if (before === undefined || !isDeepStrictEqual(before.row.selector, row.selector))
        put(before, await this.#new(row));
      else if (before.row !== row) {
        const apart = difference(before.members, row.identities);
        put(before, await this.#judged({ ...before, row }, both(apart, before.doubtful)));
      }
      this.#dirtySets.delete(hash);
      if (pace.due()) await pace.yieldNow();
    }
    for (const [hash, ids] of await this.#concerned()) {
      const before = this.#views.get(hash);
      if (before !== undefined) put(before, await this.#judged(before, ids));
      if (pace.due()) await pace.yieldNow();
    }
    this.#dirtyIdentities.clear();
    this.#begun = true;
    return changed;
  }

  async #hold(): Promise<void> {
    const { identities, addressed, pace } = this.#options;
    for (const [id, { labels, changed }] of this.#dirtyIdentities) {
      if (pace.due()) await pace.yieldNow();
      if (!changed) continue;
      const same = labels === undefined || isDeepStrictEqual(labels, identities.get(id)?.labels);
      if (!same && addressed(id)) this.#kept.set({ id, labels });
      else this.#kept.delete(id);
    }
  }

  /** Sets that changed identities may have joined or left, each with those identities. */
  async #concerned(): Promise<ReadonlyMap<SelectorHash, ReadonlySet<number>>> {
    const { pace } = this.#options;
    const concerned = new Map<SelectorHash, Set<number>>();
    for (const [id, { labels: before }] of this.#dirtyIdentities) {
      const note = (views: Iterable<View>): void => {
        for (const { row } of views) {
          const ids = concerned.get(row.hash);
          if (ids === undefined) concerned.set(row.hash, new Set([id]));
          else ids.add(id);
        }
      };
      note(this.#views.list('doubtful', identityKey(id)));
      for (const labels of [before, this.#labels(id)])
        if (labels !== undefined) for (const key of wantedOf(labels)) note(this.#views.list('wants', key));
      if (pace.due()) await pace.yieldNow();
    }
    return concerned;
  }

  async #new(row: PeerSetRow): Promise<View> {
    const { pace } = this.#options;
    const ids = new Set(row.identities);
    // At first every identity is among those that have changed.
    if (this.#begun) {
      for (const { id, labels } of this.#candidates(row.selector)) {
        if (matches(row.selector, labels)) ids.add(id);
        if (pace.due()) await pace.yieldNow();
      }
    }
    return this.#judged({ row, members: row.identities, doubtful: [] }, ids);
  }

  /** The view with these identities as they are now; itself when that changes nothing. */
  async #judged(view: View, ids: Iterable<number>): Promise<View> {
    const { pace } = this.#options;
    const { row } = view;
    const members = new Map<number, boolean>();
    const doubtful = new Map<number, boolean>();
    for (const id of ids) {
      const labels = this.#labels(id);
      const listed = includesSorted(row.identities, id);
      const matched = labels !== undefined && matches(row.selector, labels);
      members.set(id, labels === undefined ? listed : matched);
      doubtful.set(id, listed && !matched);
      if (pace.due()) await pace.yieldNow();
    }
    const after = {
      row,
      members: await pace.run(edited(view.members, members)),
      doubtful: await pace.run(edited(view.doubtful, doubtful)),
    };
    if (sameList(after.members, row.identities)) after.members = row.identities;
    return after.members === view.members && after.doubtful === view.doubtful ? view : after;
  }

  #labels(id: number): LabelMap | undefined {
    return this.#kept.get(id)?.labels ?? this.#options.identities.get(id)?.labels;
  }

  /** Identities that the selector may match. */
  *#candidates(selector: LabelSelector): Generator<{ readonly id: number; readonly labels: LabelMap }> {
    const { inputs, tables } = this.#options;
    const namespaces = selector.requirements.find(
      ({ key, operator }) => key === NAMESPACE_LABEL && operator === 'In',
    )?.values;
    if (namespaces === undefined) yield* inputs.snapshot.all(tables.identities);
    for (const namespace of namespaces ?? []) yield* inputs.snapshot.list(tables.identities, 'namespace', namespace);
  }
}

const ANY = '';
const NOBODY: ReadonlySet<number> = new Set();

/** Only what selects nodes looks at the labels of one. */
function mayHold(id: number, { selector }: PeerSetRow): boolean {
  return !isNode(id) || selectsNodes(selector);
}

/** What labels must have to fulfil the selector: keys of `wantedOf`, one of which they have then. Few labels have them. */
function wantedBy({ requirements }: LabelSelector): Key[] {
  const wanted = requirements.filter(({ operator }) => operator === 'In');
  const namespaces = wanted.find(({ key }) => key === NAMESPACE_LABEL)?.values ?? [ANY];
  const [other] = wanted.filter(({ key }) => key !== NAMESPACE_LABEL).sort((a, b) => a.values.length - b.values.length);
  if (other === undefined) return namespaces.map((namespace) => keys.join(namespace));
  // A product of two lists would be longer than the selector.
  const [namespace = ANY] = namespaces.length === 1 ? namespaces : [];
  return other.values.map((value) => keys.join(namespace, bareKey(other.key), value));
}

/** Of labels, the keys that a selector which they fulfil may be found by. */
function* wantedOf(labels: LabelMap): Generator<Key> {
  for (const namespace of [ANY, labels[NAMESPACE_LABEL] ?? ANY]) {
    yield keys.join(namespace);
    for (const [key, value] of Object.entries(labels)) yield keys.join(namespace, bareKey(key), value);
  }
}

/** Without its source: selectors may leave it open. */
function bareKey(key: string): string {
  return key.slice(key.indexOf(':') + 1);
}

function identityKey(id: number): Key {
  return keys.uint(id, 32);
}

function* both<T>(a: Iterable<T>, b: Iterable<T>): Generator<T> {
  yield* a;
  yield* b;
}

/** What one of the two ascending lists has, and the other has not. */
function* difference(a: readonly number[], b: readonly number[]): Generator<number> {
  for (let i = 0, j = 0; i < a.length || j < b.length; ) {
    const [x = Infinity, y = Infinity] = [a[i], b[j]];
    if (x < y) yield x;
    else if (y < x) yield y;
    if (x <= y) i += 1;
    if (y <= x) j += 1;
  }
}

/** The ascending list with and without what `edits` say; itself when it is so already. */
function* edited(list: readonly number[], edits: ReadonlyMap<number, boolean>): Pieces<readonly number[]> {
  const added: number[] = [];
  let gone = false;
  let done = 0;
  for (const [id, there] of edits) {
    if (++done % PIECE === 0) yield;
    const had = includesSorted(list, id);
    if (there && !had) added.push(id);
    else if (!there && had) gone = true;
  }
  if (added.length === 0 && !gone) return list;
  yield;
  const kept = gone ? list.filter((id) => edits.get(id) !== false) : list;
  return added.length === 0 ? kept : [...kept, ...added].sort((a, b) => a - b);
}

function sameList(a: readonly number[], b: readonly number[]): boolean {
  return a === b || (a.length === b.length && a.every((id, index) => id === b[index]));
}
