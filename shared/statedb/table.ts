/** One table's storage: rows, indexes, the log of revisions, delete markers, watches. Changed only by transactions. */
import { InvalidKeyError, InvalidTableSpecError, UnknownIndexError } from './errors.ts';
import { deepFreeze } from './freeze.ts';
import type { Generation, History } from './history.ts';
import { VersionedMap } from './history.ts';
import { ExactIndex } from './index-exact.ts';
import { LpmIndex } from './index-lpm.ts';
import { RevisionLog } from './revision-log.ts';
import type { Key, Revision, Table, TableSpec, Versioned } from './types.ts';
import { Pulse, WatchNode, WatchRegistry } from './watch.ts';

/** What a snapshot needs to know of a table besides its rows. */
export interface TableState {
  readonly revision: Revision;
  readonly count: number;
  readonly pending: readonly Initialiser[];
}

export interface Initialiser {
  readonly name: string;
}

/** A stream's place in the table. */
export interface Cursor {
  revision: Revision;
}

interface NetChange {
  readonly key: Key;
  readonly revision: Revision;
}

/** What a commit will do, worked out while the transaction can still be aborted. */
export interface CommitPlan {
  readonly changes: readonly NetChange[];
  readonly indexKeys: readonly {
    readonly index: { fire(k: Iterable<Key>, c: (() => void)[]): void };
    readonly keys: ReadonlySet<Key>;
  }[];
}

const EMPTY: TableState = { revision: 0, count: 0, pending: [] };

export class TableStore<T> {
  readonly handle: Table<T>;
  readonly spec: TableSpec<T>;
  readonly rows: VersionedMap<Versioned<T>>;
  readonly indexes = new Map<string, ExactIndex<T>>();
  readonly log = new RevisionLog();
  /** In revision order. */
  readonly markers = new Map<Key, Versioned<T>>();
  readonly cursors = new Set<Cursor>();
  readonly keyWatches = new WatchRegistry();
  readonly changed = new Pulse();
  readonly initialised = new WatchNode();
  /** Deletes up to this revision may have no marker any more. */
  forgotten: Revision = 0;
  /** The state as the running transaction sees it; committed otherwise. */
  state: TableState = EMPTY;

  readonly #states: VersionedMap<TableState>;
  readonly #freeze: boolean;
  #deletes = new Map<Key, Revision>();
  #revision = 0;
  #count = 0;

  constructor(spec: TableSpec<T>, history: History, states: VersionedMap<TableState>, freeze: boolean) {
    this.spec = spec;
    this.handle = Object.freeze({ name: spec.name, spec });
    this.rows = new VersionedMap(history);
    this.#states = states;
    this.#freeze = freeze;
    for (const index of spec.indexes ?? []) {
      if (this.indexes.has(index.name)) {
        throw new InvalidTableSpecError(spec.name, `two indexes are named "${index.name}"; give each its own name`);
      }
      const Index = index.kind === 'lpm' ? LpmIndex : ExactIndex;
      this.indexes.set(index.name, new Index<T>(spec.name, index, history));
    }
  }

  index(name: string): ExactIndex<T> {
    const index = this.indexes.get(name);
    if (index === undefined) throw new UnknownIndexError(this.spec.name, name, [...this.indexes.keys()]);
    return index;
  }

  stateAt(at?: Generation): TableState {
    if (at !== undefined) return this.#states.get(this.spec.name, at) ?? EMPTY;
    return { revision: this.#revision, count: this.#count, pending: this.state.pending };
  }

  get revision(): Revision {
    return this.#revision;
  }

  keyOf(row: T): Key {
    const key = this.spec.key(row);
    if (typeof key !== 'string') {
      throw new InvalidKeyError(
        `table "${this.spec.name}": key() returned ${String(key)} (${typeof key}); return a string`,
      );
    }
    return key;
  }

  /** Stores a row. Throws before anything is changed. Returns the row that was there. */
  upsert(row: T): T | undefined {
    const key = this.keyOf(row);
    const old = this.rows.get(key);
    if (old !== undefined && (old.row === row || this.spec.equals?.(old.row, row) === true)) return old.row;
    const moves = [...this.indexes.values()].map((index) => {
      const to = index.keysOf(row);
      index.check(key, to);
      return { index, from: old === undefined ? [] : index.keysOf(old.row), to };
    });
    if (this.#freeze) deepFreeze(row);
    for (const { index, from, to } of moves) index.move(key, from, to);
    this.rows.set(key, { row, revision: ++this.#revision });
    if (old === undefined) this.#count++;
    return old?.row;
  }

  delete(key: Key): T | undefined {
    const old = this.rows.get(key);
    if (old === undefined) return undefined;
    const moves = [...this.indexes.values()].map((index) => ({ index, from: index.keysOf(old.row) }));
    for (const { index, from } of moves) index.move(key, from, []);
    this.rows.set(key, undefined);
    this.#deletes.set(key, ++this.#revision);
    this.#count--;
    return old.row;
  }

  setPending(pending: readonly Initialiser[]): void {
    this.state = { ...this.state, pending };
  }

  /** Works out what the running transaction has changed. May throw what the spec's functions throw; changes nothing. */
  plan(base: Generation): CommitPlan {
    const changes: NetChange[] = [];
    const watched = [...this.indexes.values()]
      .filter((index) => index.watches.size > 0)
      .map((index) => ({ index, keys: new Set<Key>() }));
    let sorted = true;
    for (const [key, old] of this.rows.changedSince(base)) {
      const now = this.rows.get(key);
      if (now === old) continue;
      const revision = now?.revision ?? this.#deletes.get(key) ?? this.#revision;
      if (changes.length > 0 && revision < (changes.at(-1)?.revision ?? 0)) sorted = false;
      changes.push({ key, revision });
      for (const { index, keys } of watched) {
        for (const row of [old, now]) if (row !== undefined) for (const k of index.keysOf(row.row)) keys.add(k);
      }
    }
    if (!sorted) changes.sort((a, b) => a.revision - b.revision);
    return { changes, indexKeys: watched };
  }

  /** Makes the running transaction's changes the committed state. Does not throw. Collects the callbacks to run. */
  commit(base: Generation, plan: CommitPlan, callbacks: (() => void)[]): void {
    const before = this.rows.changedSince(base);
    for (const { key, revision } of plan.changes) {
      const old = before.get(key);
      const now = this.rows.get(key);
      const marker = this.markers.get(key);
      if (old !== undefined) this.log.remove(old.revision);
      if (marker !== undefined) {
        this.log.remove(marker.revision);
        this.markers.delete(key);
      }
      if (now !== undefined) {
        this.log.append(revision, key);
      } else if (old !== undefined) {
        if (this.cursors.size === 0) this.forgotten = revision;
        else {
          this.markers.set(key, { row: old.row, revision });
          this.log.append(revision, key);
        }
      }
    }
    const committed = this.#states.get(this.spec.name) ?? EMPTY;
    const wasPending = committed.pending.length;
    this.#deletes = new Map();
    if (committed.revision !== this.#revision || committed.pending !== this.state.pending) {
      this.state = { revision: this.#revision, count: this.#count, pending: this.state.pending };
      this.#states.set(this.spec.name, this.state);
    }
    for (const { key } of plan.changes) this.keyWatches.fire(key, callbacks);
    for (const { index, keys } of plan.indexKeys) index.fire(keys, callbacks);
    // Also when a row came and went within the transaction: streams still have to pass the revisions that took.
    if (committed.revision !== this.#revision) this.changed.fire(callbacks);
    if (wasPending > 0 && this.state.pending.length === 0) this.initialised.fire(callbacks);
  }

  /** Goes back to the committed state; the rows have been rolled back already. */
  abort(): void {
    this.state = this.#states.get(this.spec.name) ?? EMPTY;
    this.#revision = this.state.revision;
    this.#count = this.state.count;
    this.#deletes = new Map();
  }

  /** Drops the delete markers that every stream has passed. */
  forgetMarkers(): void {
    if (this.markers.size === 0) return;
    let passed = Number.POSITIVE_INFINITY;
    for (const cursor of this.cursors) passed = Math.min(passed, cursor.revision);
    for (const [key, marker] of this.markers) {
      if (marker.revision > passed) return;
      this.markers.delete(key);
      this.log.remove(marker.revision);
      this.forgotten = marker.revision;
    }
  }
}
