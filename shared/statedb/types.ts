/**
 * StateDB: typed, transactional, in-memory tables.
 *
 * Guarantees:
 * - A snapshot sees all tables at one instant, costs O(1), never changes, and is valid until disposed.
 * - A write transaction is atomic: readers see all of it or none of it. It reads its own writes. A throw aborts it and
 *   leaves nothing behind: no changed row, no revision, no woken watcher, no stream, no consumed initialiser.
 * - Every effective write gets its table's next revision. A write that stores an equal object (same reference, or equal
 *   by the table's `equals`) is not effective.
 * - Iteration is lazy, in key order, and stable: what is written while it runs, also by its own transaction, is not seen.
 * - `changes()` yields upserts and deletes in revision order, coalesced per key, resumable, pulled by the consumer.
 *   Replaying a stream from 0 always reproduces the table. Delete markers live only while a stream still needs them.
 * - A watch fires on the commit that changes the answer it came with: never missed, and only then.
 * - No operation costs more for there being more tables, more open snapshots or more idle streams.
 */

import type { Draft } from 'immer';

export type { Draft } from 'immer';

/** A position in one table's history. Starts at 0 (empty table), grows by at least one with each effective write. */
export type Revision = number;

/** An index key: compared as ordered code units. Build numbers with `keys.int`, `keys.uint`; addresses with `keys.prefix`. */
export type Key = string;

/** How one secondary index finds its keys in a row. */
export interface IndexSpec<T, Name extends string = string> {
  readonly name: Name;
  /** No two rows may share a key: a violating write throws `UniqueIndexError`. Default false. */
  readonly unique?: boolean;
  /** `exact` (default): ordered keys, with prefix and range scans. `lpm`: keys made by `keys.prefix`, for `lookup`, `covering`, `covered`. */
  readonly kind?: 'exact' | 'lpm';
  /** The row's keys in this index: none, one, or many. Pure. */
  readonly keys: (row: T) => Iterable<Key>;
}

/** What a printed table shows: a heading and how to find its cell in a row. */
export type Columns<T> = Readonly<Record<string, (row: T) => unknown>>;

/** How a table keeps its rows. */
export interface TableSpec<T, Index extends string = string> {
  readonly name: string;
  /** The unique primary key of a row. Pure; two rows with the same key are the same row. */
  readonly key: (row: T) => Key;
  readonly indexes?: readonly IndexSpec<T, Index>[];
  /** Equality that makes a write ineffective; default is identity of the object. */
  readonly equals?: (a: T, b: T) => boolean;
  /** For `printTable()`. Default: the top-level properties of the rows. */
  readonly columns?: Columns<T>;
}

/**
 * A table of rows `T`. Where `Index` names its indexes (`never`: it has none), a query by any other name does not compile; left out, the
 * name is looked up when the query runs.
 */
export interface Table<T, Index extends string = string> {
  readonly name: string;
  readonly spec: TableSpec<T, Index>;
}

/** A table of whatever rows, for those who do not look into them. */
// biome-ignore lint/suspicious/noExplicitAny: rows of unrelated tables have no common type; only names are used.
export type AnyTable = Table<any>;

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

/** A question about one table, as plain data: make it with `query`. The read operations of the same names answer it. */
export type Query<T> =
  | { readonly table: Table<T>; readonly kind: 'all' }
  | { readonly table: Table<T>; readonly kind: 'get'; readonly key: Key }
  | { readonly table: Table<T>; readonly kind: 'list'; readonly index: string; readonly key: Key }
  | { readonly table: Table<T>; readonly kind: 'prefix'; readonly key: Key; readonly index?: string | undefined }
  | {
      readonly table: Table<T>;
      readonly kind: 'range';
      readonly from: Key;
      readonly to?: Key | undefined;
      readonly index?: string | undefined;
    }
  | {
      readonly table: Table<T>;
      readonly kind: 'lookup' | 'covering' | 'covered';
      readonly index: string;
      readonly key: Key;
    };

/** Fires once, on the commit that changes the answer it came with. */
export interface Watch {
  readonly fired: boolean;
  /** Resolves on the firing commit; rejects with the signal's reason when aborted first. */
  wait(signal?: AbortSignal): Promise<void>;
  /** Calls back once, synchronously after the firing commit. Returns a function that takes it back. */
  onFire(callback: () => void): () => void;
}

/** The rows that answered a query, and what fires when they no longer do. */
export interface Answer<T> {
  readonly rows: readonly T[];
  readonly watch: Watch;
}

/** Read operations, common to snapshots and write transactions. Iteration is lazy, in key order, and stable. */
export interface Reader {
  get<T>(table: Table<T>, key: Key): T | undefined;
  getVersioned<T>(table: Table<T>, key: Key): Versioned<T> | undefined;
  has<T>(table: Table<T>, key: Key): boolean;
  count<T>(table: Table<T>): number;
  revision<T>(table: Table<T>): Revision;
  /** True when every initialiser registered on the table is done. */
  initialised<T>(table: Table<T>): boolean;
  /** Every row, in the order of primary keys. */
  all<T>(table: Table<T>): IterableIterator<T>;
  /** Rows with exactly this key in a secondary index, in the order of their primary keys. */
  list<T, I extends string>(table: Table<T, I>, index: NoInfer<I>, key: Key): IterableIterator<T>;
  /** Rows whose primary key (or a key in `index`) starts with `prefix`, in key order, each once. */
  prefix<T, I extends string>(table: Table<T, I>, prefix: Key, index?: NoInfer<I>): IterableIterator<T>;
  /** Rows whose primary key (or a key in `index`) is >= `from`, in key order, each once. */
  lowerBound<T, I extends string>(table: Table<T, I>, from: Key, index?: NoInfer<I>): IterableIterator<T>;
  /** Rows whose primary key (or a key in `index`) is >= `from` and < `to` (undefined: no end), in key order, each once. */
  range<T, I extends string>(
    table: Table<T, I>,
    from: Key,
    to: Key | undefined,
    index?: NoInfer<I>,
  ): IterableIterator<T>;
  /** Rows of the longest prefix of an `lpm` index that contains `key` (a prefix or address by `keys`). */
  lookup<T, I extends string>(table: Table<T, I>, index: NoInfer<I>, key: Key): IterableIterator<T>;
  /** Rows of every prefix of an `lpm` index that contains `key`, shortest first. */
  covering<T, I extends string>(table: Table<T, I>, index: NoInfer<I>, key: Key): IterableIterator<T>;
  /** Rows of every prefix of an `lpm` index that `key` contains, in key order. */
  covered<T, I extends string>(table: Table<T, I>, index: NoInfer<I>, key: Key): IterableIterator<T>;
  /** The answer to a query. */
  select<T>(query: Query<T>): IterableIterator<T>;
  /** Shows the answer to a query to `visitor`, row by row, until that returns false. Whole tables take less time than by an iterator. */
  visit<T>(query: Query<T>, visitor: (row: T) => false | undefined): void;
}

/** An immutable view of all tables at one instant. Use with `using`; reading after disposal throws. */
export interface Snapshot extends Reader, Disposable {
  /** The answer, with a watch on it. It has fired already when a later commit has changed the answer. */
  watch<T>(query: Query<T>): Answer<T>;
}

/** A write transaction over the tables it named; writing to another table throws. */
export interface WriteTxn extends Reader {
  /** Adds a row. Throws `RowExistsError` when its key is taken. */
  insert<T>(table: Table<T>, row: T): void;
  /** Inserts or replaces. Returns the row that was there. */
  upsert<T>(table: Table<T>, row: T): T | undefined;
  /** Inserts, or replaces what is there by `merge(there, row)`, which must keep the key. Returns the row that was there. */
  modify<T>(table: Table<T>, row: T, merge: (there: T, row: T) => T): T | undefined;
  /** Stores the row only when the revision of the row there is still `revision`; 0 = only when none is there. Returns whether it did. */
  compareAndSwap<T>(table: Table<T>, revision: Revision, row: T): boolean;
  /** Deletes the row only when its revision is still `revision`. Returns whether it did. */
  compareAndDelete<T>(table: Table<T>, revision: Revision, key: Key): boolean;
  /**
   * Edits a row by immer: `recipe` changes a draft in place, however deep, and what it does not touch is shared with the row before. Takes
   * microseconds, some ten times a copy by hand. Throws `RowNotFoundError` when absent. Returns the new row.
   */
  edit<T>(table: Table<T>, key: Key, recipe: (draft: Draft<T>) => void): T;
  /** Returns the row that was there. */
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

/** Where a change stream begins, and what it is called. */
export interface ChangesOptions {
  /**
   * Starts after this revision; 0 (default) replays the whole table first. To hand a stream on, give its `revision` and keep
   * it open until the next one exists. A stream that has not finished its first replay cannot be handed on: start from 0.
   */
  readonly from?: Revision;
  /** Names the stream in `tables()`. */
  readonly name?: string;
}

/** Must be called once its source has delivered the table's first complete state. */
export type InitDone = (txn: WriteTxn) => void;

/** A change stream that is open. */
export interface StreamInfo {
  readonly name: string;
  readonly revision: Revision;
  /** Revisions that the stream is behind its table. */
  readonly lag: number;
}

/** A table as it is after the last commit. */
export interface TableInfo {
  readonly table: AnyTable;
  readonly name: string;
  readonly rows: number;
  readonly revision: Revision;
  readonly indexes: readonly string[];
  /** Names of the initialisers still pending; empty when the table is initialised. */
  readonly pending: readonly string[];
  readonly streams: readonly StreamInfo[];
  /** Delete markers kept for streams. */
  readonly deleteMarkers: number;
  /** Watches that somebody holds or listens to. */
  readonly watches: number;
}

/** Counts of what is held; they return to 0 when everything is disposed. */
export interface StateDBStats {
  /** Snapshots not yet disposed; undefined where they are not counted (`countSnapshots`). */
  readonly snapshots: number | undefined;
  /** Change streams not yet disposed. */
  readonly streams: number;
  /** Delete markers kept for live streams. */
  readonly deleteMarkers: number;
  /** Watches fired so far, by all commits. */
  readonly watchesFired: number;
}

/** Tables in memory. A write is one atomic, synchronous transaction over the tables that it names; readers see the last commit. */
export interface StateDB {
  /** Registers a table. Throws `DuplicateTableError`, `InvalidTableSpecError`, and within a write `ReentrantWriteError`. */
  table<T, I extends string = string>(spec: TableSpec<T, I>): Table<T, I>;
  /** Adds an index to a table that exists, over the rows it has. Snapshots taken before do not know it. Throws as `table`. */
  addIndex<T>(table: Table<T>, spec: IndexSpec<T>): void;
  read(): Snapshot;
  /** Runs `fn` synchronously as one atomic transaction on `tables`; returns what `fn` returned. Not re-entrant. */
  write<R>(tables: readonly AnyTable[], fn: (txn: WriteTxn) => R): R;
  /** A stream of changes. Throws `InvalidRevisionError`, or `RevisionGoneError` when deletes since then are forgotten. */
  changes<T>(table: Table<T>, options?: ChangesOptions): ChangeStream<T>;
  /** Resolves with the answer once `predicate` holds of it; rejects with the signal's reason when aborted first. */
  waitFor<T>(query: Query<T>, predicate: (rows: readonly T[]) => boolean, signal?: AbortSignal): Promise<readonly T[]>;
  /** Registers an initialiser: the table is `initialised` when all of them are done. */
  initialiser<T>(table: Table<T>, name: string): InitDone;
  /** Names of the initialisers still pending on a table. */
  pendingInitialisers<T>(table: Table<T>): readonly string[];
  /** Fires when the table becomes initialised (already fired if it is). */
  initialisedWatch<T>(table: Table<T>): Watch;
  /** What every table holds, in the order of registration. */
  tables(): readonly TableInfo[];
  stats(): StateDBStats;
}
