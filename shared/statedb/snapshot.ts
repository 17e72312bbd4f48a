/** A snapshot: one generation, held until disposed. */
import { SnapshotDisposedError } from './errors.ts';
import type { Generation } from './history.ts';
import type { StoreOf } from './reader.ts';
import { BaseReader } from './reader.ts';
import type { TableStore } from './table.ts';
import type { Key, Snapshot, Table, Watch } from './types.ts';
import { WatchNode } from './watch.ts';

export class SnapshotView extends BaseReader implements Snapshot {
  #generation: Generation | undefined;
  readonly #committed: () => Generation | undefined;
  readonly #release: (snapshot: SnapshotView, generation: Generation) => void;

  /** `committed` gives the generation of the committed state, undefined when that is the present. */
  constructor(
    storeOf: StoreOf,
    generation: Generation,
    committed: () => Generation | undefined,
    release: (snapshot: SnapshotView, generation: Generation) => void,
  ) {
    super(storeOf);
    this.#generation = generation;
    this.#committed = committed;
    this.#release = release;
  }

  getWatch<T>(table: Table<T>, key: Key): { readonly row: T | undefined; readonly watch: Watch } {
    const store = this.storeOf(table);
    const mine = store.rows.get(key, this.at());
    const stale = mine !== store.rows.get(key, this.#committed());
    return { row: mine?.row, watch: stale ? new WatchNode(true) : store.keyWatches.node(key) };
  }

  findWatch<T>(table: Table<T>, index: string, key: Key): { readonly rows: readonly T[]; readonly watch: Watch } {
    const store = this.storeOf(table);
    const found = store.index(index);
    const mine = versions(store, found.find(key, this.at()), this.at());
    const now = versions(store, found.find(key, this.#committed()), this.#committed());
    const stale = mine.length !== now.length || mine.some((version, i) => version !== now[i]);
    return { rows: mine.map((version) => version.row), watch: stale ? new WatchNode(true) : found.watches.node(key) };
  }

  allWatch<T>(table: Table<T>): { readonly rows: readonly T[]; readonly watch: Watch } {
    const store = this.storeOf(table);
    const stale = store.stateAt(this.at()).revision !== store.stateAt(this.#committed()).revision;
    return { rows: [...this.all(table)], watch: stale ? new WatchNode(true) : store.changed.node };
  }

  [Symbol.dispose](): void {
    const generation = this.#generation;
    this.#generation = undefined;
    if (generation !== undefined) this.#release(this, generation);
  }

  protected at(): Generation {
    if (this.#generation === undefined) throw new SnapshotDisposedError();
    return this.#generation;
  }
}

function versions<T>(store: TableStore<T>, keys: Iterable<Key>, at: Generation | undefined) {
  const found = [];
  for (const key of keys) {
    const version = store.rows.get(key, at);
    if (version !== undefined) found.push(version);
  }
  return found;
}
