/**
 * StateDB: typed, transactional, in-memory tables (design section 3).
 *
 * Guarantees:
 * - A snapshot sees all tables at one instant, costs O(1), never changes, and is valid until disposed.
 * - A write transaction is atomic: readers see all of it or none of it. It reads its own writes. A throw aborts it and
 *   leaves nothing behind: no changed row, no woken watcher, no registered stream, no consumed initialiser.
 * - Every effective write gets its table's next revision. A write that stores an equal object (same reference, or equal
 *   by the table's `equals`) is not effective.
 * - `changes()` yields upserts and deletes in revision order, coalesced per key, resumable, pulled by the consumer.
 *   Replaying a stream from 0 always reproduces the table. Delete markers live only while a stream still needs them.
 */

/** A position in one table's history. Starts at 0 (empty table), grows by at least one with each effective write. */
export type Revision = number;

/** An index key: compared as ordered bytes. Build numbers with `keys.int`, `keys.uint`; addresses with `keys.prefix`. */
export type Key = string;

/** How one secondary index finds its keys in a row. */
export interface IndexSpec<T> {
  readonly name: string;
  /** No two rows may share a key: a violating write throws `UniqueIndexError`. Default false. */
  readonly unique?: boolean;
  /** `exact` (default): ordered keys, with prefix scans. `lpm`: keys made by `keys.prefix`, found by longest match. */
  readonly kind?: 'exact' | 'lpm';
  /** The row's keys in this index: none, one, or many. Pure. */
  readonly keys: (row: T) => Iterable<Key>;
}

export interface TableSpec<T> {
  readonly name: string;
  /** The unique primary key of a row. Pure; two rows with the same key are the same row. */
  readonly key: (row: T) => Key;
  readonly indexes?: readonly IndexSpec<T>[];
  /** Equality that makes a write ineffective; default is identity of the object. */
  readonly equals?: (a: T, b: T) => boolean;
}

/** A row with the revision of its last effective write. */
export interface Versioned<T> {
  readonly row: T;
  readonly revision: Revision;
}

/** One step of a change stream. `deleted` carries the last row that was there. */
export interface Change<T> {
  readonly row: T;
  readonly revision: Revision;
  readonly deleted: boolean;
}

/** Fires once, on the commit that changes the answer it came with. */
export interface Watch {
  readonly fired: boolean;
  /** Resolves on the firing commit; rejects with the signal's reason when aborted first. */
  wait(signal?: AbortSignal): Promise<void>;
  /** Calls back once, synchronously after the firing commit. Returns a function that takes it back. */
  onFire(callback: () => void): () => void;
}

/** Read operations, common to snapshots and write transactions. Iteration is in key order. */
export interface Reader {
  get<T>(table: Table<T>, key: Key): T | undefined;
  getVersioned<T>(table: Table<T>, key: Key): Versioned<T> | undefined;
  has<T>(table: Table<T>, key: Key): boolean;
  all<T>(table: Table<T>): IterableIterator<T>;
  count<T>(table: Table<T>): number;
  revision<T>(table: Table<T>): Revision;
  /** Rows of a secondary index with exactly this key. For an `lpm` index: rows of the longest prefix containing it. */
  find<T>(table: Table<T>, index: string, key: Key): IterableIterator<T>;
  /** Rows whose primary key (or key in `index`) starts with `prefix`, in key order. */
  prefix<T>(table: Table<T>, prefix: Key, index?: string): IterableIterator<T>;
  /** Rows whose primary key (or key in `index`) is >= `from`, in key order. */
  lowerBound<T>(table: Table<T>, from: Key, index?: string): IterableIterator<T>;
  /** True when every initialiser registered on the table is done. */
  initialised<T>(table: Table<T>): boolean;
}

/** An immutable view of all tables at one instant. Use with `using`; reading after disposal throws. */
export interface Snapshot extends Reader, Disposable {
  getWatch<T>(table: Table<T>, key: Key): { readonly row: T | undefined; readonly watch: Watch };
  findWatch<T>(table: Table<T>, index: string, key: Key): { readonly rows: readonly T[]; readonly watch: Watch };
  allWatch<T>(table: Table<T>): { readonly rows: readonly T[]; readonly watch: Watch };
}

/** A write transaction over the tables it named; touching another table for writing throws. */
export interface WriteTxn extends Reader {
  /** Inserts or replaces. Returns the row that was there. */
  upsert<T>(table: Table<T>, row: T): T | undefined;
  /** Inserts or replaces only when the row's revision is still `revision` (0 = absent). Returns whether it did. */
  compareAndSwap<T>(table: Table<T>, revision: Revision, row: T): boolean;
  /** Convenience edit of nested rows by immer. Throws `RowNotFoundError` when absent. Returns the new row. */
  edit<T>(table: Table<T>, key: Key, recipe: (draft: T) => void): T;
  delete<T>(table: Table<T>, key: Key): T | undefined;
  deleteAll<T>(table: Table<T>): void;
}

/** A pulled change stream. Its cursor is the backpressure. Dispose it, or its delete markers live on. */
export interface ChangeStream<T> extends Disposable {
  /** The next changes, at most `limit` (default all), coalesced per key, in revision order; [] when none are pending. */
  next(limit?: number): readonly Change<T>[];
  /** Fires when something is pending again (already fired when something is). */
  watch(): Watch;
  /** Everything up to and including this revision has been handed out. */
  readonly revision: Revision;
}

/** Must be called once its source has delivered the table's first complete state. */
export type InitDone = (txn: WriteTxn) => void;

export interface Table<T> {
  readonly name: string;
  readonly spec: TableSpec<T>;
}

export interface StateDB {
  /** Registers a table. Throws `DuplicateTableError`. */
  table<T>(spec: TableSpec<T>): Table<T>;
  read(): Snapshot;
  /** Runs `fn` synchronously as one atomic transaction on `tables`; returns what `fn` returned. Not re-entrant. */
  write<R>(
    tables: readonly Table<never>[] | readonly Table<unknown>[] | readonly AnyTable[],
    fn: (txn: WriteTxn) => R,
  ): R;
  /** A stream of changes after `from` (default 0: starts by replaying the whole table). */
  changes<T>(table: Table<T>, from?: Revision): ChangeStream<T>;
  /** Registers an initialiser: the table is `initialised` when all of them are done. */
  initialiser<T>(table: Table<T>, name: string): InitDone;
  /** Names of the initialisers still pending on a table. */
  pendingInitialisers<T>(table: Table<T>): readonly string[];
  /** Fires when the table becomes initialised (already fired if it is). */
  initialisedWatch<T>(table: Table<T>): Watch;
  tables(): readonly AnyTable[];
  /** Counts of what is held; they return to 0 when everything is disposed. */
  stats(): StateDBStats;
}

export interface StateDBStats {
  /** Snapshots not yet disposed. */
  readonly snapshots: number;
  /** Old versions kept for live snapshots. */
  readonly savedVersions: number;
  /** Change streams not yet disposed. */
  readonly streams: number;
  /** Delete markers kept for live streams. */
  readonly deleteMarkers: number;
}

// biome-ignore lint/suspicious/noExplicitAny: rows of unrelated tables have no common type; only names are used.
export type AnyTable = Table<any>;
