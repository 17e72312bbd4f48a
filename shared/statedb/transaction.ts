/** A write transaction: its tables' drafts. */
import { type Draft, produce } from 'immer';
import { AsyncWriteError, TableNotInTransactionError, TransactionClosedError } from './errors.ts';
import { type SnapshotOwner, SnapshotReader } from './reader.ts';
import type { TableStore } from './table.ts';
import type { Key, Revision, Table, WriteTxn } from './types.ts';
import type { View } from './view.ts';

function isThenable(value: unknown): value is PromiseLike<unknown> {
  return typeof value === 'object' && value !== null && 'then' in value && typeof value.then === 'function';
}

export class Transaction extends SnapshotReader implements WriteTxn {
  readonly stores: readonly TableStore<unknown>[];
  /** Undone in reverse order when the transaction aborts. */
  undo: (() => void)[] | undefined;
  #open = true;

  constructor(db: SnapshotOwner, stores: readonly TableStore<unknown>[]) {
    super(db);
    this.stores = stores;
  }

  insert<T>(table: Table<T>, row: T): void {
    this.#writable(table).insert(row);
  }

  upsert<T>(table: Table<T>, row: T): T | undefined {
    return this.#writable(table).upsert(row);
  }

  modify<T>(table: Table<T>, row: T, merge: (there: T, row: T) => T): T | undefined {
    const store = this.#writable(table);
    return store.modify(row, (there, given) => {
      const merged = merge(there, given);
      refuseAsync(merged, `the merge function given to modify on table "${table.name}"`);
      return merged;
    });
  }

  compareAndSwap<T>(table: Table<T>, revision: Revision, row: T): boolean {
    return this.#writable(table).compareAndSwap(revision, row);
  }

  compareAndDelete<T>(table: Table<T>, revision: Revision, key: Key): boolean {
    const store = this.#writable(table);
    if (this.getVersioned(table, key)?.revision !== revision) return false;
    store.delete(key);
    return true;
  }

  edit<T>(table: Table<T>, key: Key, recipe: (draft: Draft<T>) => void): T {
    return this.#writable(table).edit(key, (old) =>
      produce(old, (draft) => {
        refuseAsync(recipe(draft), `the recipe given to edit on table "${table.name}"`);
      }),
    );
  }

  delete<T>(table: Table<T>, key: Key): T | undefined {
    return this.#writable(table).delete(key);
  }

  deleteAll<T>(table: Table<T>): void {
    this.#writable(table).deleteAll();
  }

  /** Takes an initialiser off its table's pending ones. */
  initialiserDone<T>(table: Table<T>, name: string): void {
    const store = this.#writable(table);
    const { pending } = store.current;
    if (pending.includes(name)) store.setPending(pending.filter((other) => other !== name));
  }

  writes<T>(store: TableStore<T>): boolean {
    return this.stores.includes(store as unknown as TableStore<unknown>);
  }

  close(): void {
    this.#open = false;
  }

  override check(): void {
    if (!this.#open) throw new TransactionClosedError();
  }

  protected override view<T>(store: TableStore<T>): View<T> {
    this.check();
    return store.current;
  }

  protected override stableView<T>(store: TableStore<T>): View<T> {
    this.check();
    store.seal();
    return store.current;
  }

  #writable<T>(table: Table<T>): TableStore<T> {
    this.check();
    const store = this.storeOf(table);
    if (!this.writes(store)) {
      throw new TableNotInTransactionError(
        table.name,
        this.stores.map(({ spec }) => spec.name),
      );
    }
    return store;
  }
}

/** Throws `AsyncWriteError` for a promise. */
export function refuseAsync(result: unknown, what: string): void {
  if (!isThenable(result)) return;
  // The caller gets the error that explains; what the abandoned promise does later says nothing more.
  result.then(undefined, () => {});
  throw new AsyncWriteError(what);
}
