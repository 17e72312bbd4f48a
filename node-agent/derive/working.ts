import type { Key, Query, Snapshot, StateDB, Table, TableSpec, WriteTxn } from '@weir/statedb';

/** Read access to the rows of one working table. */
export type RowsView<K, T> = Pick<Rows<K, T>, 'size' | 'get' | 'has' | 'values' | 'list' | 'select'>;

/**
 * One table of what the model has computed so far. Nothing in `derive/` keeps such state beside its tables; only marks of what
 * the round under way has yet to look at are plain sets. Every call is a snapshot or a transaction of its own: parts that change
 * many rows at once use `write`; those that change several tables, the database's.
 */
export class Rows<K, T> {
  readonly table: Table<T>;
  /** The primary key, for use in transactions. */
  readonly keyOf: (key: K) => Key;
  readonly #db: StateDB;

  /** Registers the table. `keyOf` makes the primary key that `spec.key` finds in a row. */
  constructor(db: StateDB, spec: TableSpec<T>, keyOf: (key: K) => Key) {
    this.#db = db;
    this.table = db.table(spec);
    this.keyOf = keyOf;
  }

  get size(): number {
    return this.#ask((snapshot) => snapshot.count(this.table));
  }

  get(key: K): T | undefined {
    return this.#ask((snapshot) => snapshot.get(this.table, this.keyOf(key)));
  }

  has(key: K): boolean {
    return this.#ask((snapshot) => snapshot.has(this.table, this.keyOf(key)));
  }

  /** Every row, in the order of keys; what is written meanwhile is not seen. */
  *values(): Generator<T> {
    using snapshot = this.#db.read();
    yield* snapshot.all(this.table);
  }

  /** Rows with this key in an index; what is written meanwhile is not seen. */
  *list(index: string, key: Key): Generator<T> {
    using snapshot = this.#db.read();
    yield* snapshot.list(this.table, index, key);
  }

  /** Rows that answer a query of this table; what is written meanwhile is not seen. */
  *select(query: Query<T>): Generator<T> {
    using snapshot = this.#db.read();
    yield* snapshot.select(query);
  }

  /** Inserts or replaces. Returns the row that was there. */
  set(row: T): T | undefined {
    return this.write((txn) => txn.upsert(this.table, row));
  }

  /** Returns the row that was there. */
  delete(key: K): T | undefined {
    return this.write((txn) => txn.delete(this.table, this.keyOf(key)));
  }

  write<R>(fn: (txn: WriteTxn) => R): R {
    return this.#db.write([this.table], fn);
  }

  /** Without `using`, which takes longer than the look itself. */
  #ask<R>(look: (snapshot: Snapshot) => R): R {
    const snapshot = this.#db.read();
    try {
      return look(snapshot);
    } finally {
      snapshot[Symbol.dispose]();
    }
  }
}
