/** A write transaction. It changes the maps in place; what it changed is saved in the generation it started from. */
import { produce } from 'immer';
import {
  AsyncWriteError,
  KeyChangedError,
  RowNotFoundError,
  TableNotInTransactionError,
  TransactionClosedError,
} from './errors.ts';
import type { Generation } from './history.ts';
import type { StoreOf } from './reader.ts';
import { BaseReader } from './reader.ts';
import type { Initialiser, TableStore } from './table.ts';
import type { AnyTable, Key, Revision, Table, WriteTxn } from './types.ts';

export function isThenable(value: unknown): value is PromiseLike<unknown> {
  return typeof value === 'object' && value !== null && 'then' in value && typeof value.then === 'function';
}

export class Transaction extends BaseReader implements WriteTxn {
  readonly base: Generation;
  readonly tables: ReadonlySet<AnyTable>;
  /** Undone in reverse order when the transaction aborts. */
  readonly undo: (() => void)[] = [];
  #open = true;

  constructor(storeOf: StoreOf, base: Generation, tables: ReadonlySet<AnyTable>) {
    super(storeOf);
    this.base = base;
    this.tables = tables;
  }

  upsert<T>(table: Table<T>, row: T): T | undefined {
    return this.#writable(table).upsert(row);
  }

  compareAndSwap<T>(table: Table<T>, revision: Revision, row: T): boolean {
    const store = this.#writable(table);
    if ((store.rows.get(store.keyOf(row))?.revision ?? 0) !== revision) return false;
    store.upsert(row);
    return true;
  }

  edit<T>(table: Table<T>, key: Key, recipe: (draft: T) => void): T {
    const store = this.#writable(table);
    const old = store.rows.get(key);
    if (old === undefined) throw new RowNotFoundError(table.name, key);
    const row = produce(old.row, (draft) => {
      const result: unknown = recipe(draft as T);
      if (isThenable(result)) {
        result.then(undefined, () => {});
        throw new AsyncWriteError(`the recipe given to edit on table "${table.name}"`);
      }
    });
    const newKey = store.keyOf(row);
    if (newKey !== key) throw new KeyChangedError(table.name, key, newKey);
    store.upsert(row);
    return store.rows.get(key)?.row ?? row;
  }

  delete<T>(table: Table<T>, key: Key): T | undefined {
    return this.#writable(table).delete(key);
  }

  deleteAll<T>(table: Table<T>): void {
    const store = this.#writable(table);
    for (const key of store.rows.ordered().iterate()) store.delete(key);
  }

  /** Takes an initialiser off its table's pending ones. */
  initialiserDone<T>(table: Table<T>, initialiser: Initialiser): void {
    const store = this.#writable(table);
    store.setPending(store.state.pending.filter((pending) => pending !== initialiser));
  }

  close(): void {
    this.#open = false;
  }

  protected at(): undefined {
    if (!this.#open) throw new TransactionClosedError();
    return undefined;
  }

  #writable<T>(table: Table<T>): TableStore<T> {
    this.at();
    const store = this.storeOf(table);
    if (!this.tables.has(table))
      throw new TableNotInTransactionError(
        table.name,
        [...this.tables].map((t) => t.name),
      );
    return store;
  }
}
