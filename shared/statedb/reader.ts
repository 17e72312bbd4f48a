/** The read operations, over any view of the tables. Iterators fix their keys when they are made. */
import { InvalidKeyError } from './errors.ts';
import type { Generation } from './history.ts';
import { primaries } from './index-exact.ts';
import { afterPrefix } from './keys.ts';
import type { TableStore } from './table.ts';
import type { Key, Reader, Revision, Table, Versioned } from './types.ts';

/** Finds a table's storage. Throws `UnknownTableError` for a table of another StateDB. */
export type StoreOf = <T>(table: Table<T>) => TableStore<T>;

export abstract class BaseReader implements Reader {
  protected readonly storeOf: StoreOf;

  constructor(storeOf: StoreOf) {
    this.storeOf = storeOf;
  }

  /** The generation to read, undefined for the present; throws when this reader is no longer valid. */
  protected abstract at(): Generation | undefined;

  get<T>(table: Table<T>, key: Key): T | undefined {
    return this.storeOf(table).rows.get(key, this.at())?.row;
  }

  getVersioned<T>(table: Table<T>, key: Key): Versioned<T> | undefined {
    return this.storeOf(table).rows.get(key, this.at());
  }

  has<T>(table: Table<T>, key: Key): boolean {
    return this.storeOf(table).rows.get(key, this.at()) !== undefined;
  }

  count<T>(table: Table<T>): number {
    return this.storeOf(table).stateAt(this.at()).count;
  }

  revision<T>(table: Table<T>): Revision {
    return this.storeOf(table).stateAt(this.at()).revision;
  }

  initialised<T>(table: Table<T>): boolean {
    return this.storeOf(table).stateAt(this.at()).pending.length === 0;
  }

  all<T>(table: Table<T>): IterableIterator<T> {
    const store = this.storeOf(table);
    return this.rowsOf(store, store.rows.ordered(this.at()).iterate());
  }

  find<T>(table: Table<T>, index: string, key: Key): IterableIterator<T> {
    const store = this.storeOf(table);
    return this.rowsOf(store, store.index(index).find(key, this.at()));
  }

  prefix<T>(table: Table<T>, prefix: Key, index?: string): IterableIterator<T> {
    return this.#range(table, prefix, afterPrefix(prefix), index);
  }

  lowerBound<T>(table: Table<T>, from: Key, index?: string): IterableIterator<T> {
    return this.#range(table, from, undefined, index);
  }

  #range<T>(table: Table<T>, from: Key, to: Key | undefined, indexName: string | undefined): IterableIterator<T> {
    if (typeof from !== 'string') throw new InvalidKeyError(`${String(from)} is not a key; keys are strings`);
    const store = this.storeOf(table);
    const at = this.at();
    if (indexName === undefined) return this.rowsOf(store, until(store.rows.ordered(at).iterate(from), to));
    const index = store.index(indexName);
    const keys = until(index.postings.ordered(at).iterate(from), to);
    return this.rowsOf(
      store,
      primariesOf(keys, (key) => primaries(index.postings.get(key, this.at())), index.multi),
    );
  }

  protected *rowsOf<T>(store: TableStore<T>, keys: Iterable<Key>): Generator<T, undefined, undefined> {
    for (const key of keys) {
      const found = store.rows.get(key, this.at());
      if (found !== undefined) yield found.row;
    }
    return undefined;
  }
}

function* until(keys: Iterable<Key>, end: Key | undefined): Generator<Key, undefined, undefined> {
  for (const key of keys) {
    if (end !== undefined && key >= end) return undefined;
    yield key;
  }
  return undefined;
}

/** The rows of several index keys; a row that is found by more than one is given once. */
function* primariesOf(keys: Iterable<Key>, of: (key: Key) => Iterable<Key>, multi: boolean): Generator<Key> {
  const seen = new Set<Key>();
  for (const key of keys) {
    for (const primary of of(key)) {
      if (multi) {
        if (seen.has(primary)) continue;
        seen.add(primary);
      }
      yield primary;
    }
  }
}
