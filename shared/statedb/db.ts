/** The StateDB: registers tables, hands out snapshots and streams, runs transactions. */
import { enableMapSet } from 'immer';
import { TableStream } from './changes.ts';
import {
  AsyncWriteError,
  DuplicateTableError,
  InitialiserError,
  InvalidRevisionError,
  ReentrantWriteError,
  RevisionGoneError,
  UnknownTableError,
} from './errors.ts';
import type { Generation } from './history.ts';
import { History, rollback, VersionedMap } from './history.ts';
import { SnapshotView } from './snapshot.ts';
import type { Cursor, Initialiser, TableState } from './table.ts';
import { TableStore } from './table.ts';
import { isThenable, Transaction } from './transaction.ts';
import type {
  AnyTable,
  ChangeStream,
  InitDone,
  Revision,
  Snapshot,
  StateDB,
  StateDBStats,
  Table,
  TableSpec,
  Watch,
  WriteTxn,
} from './types.ts';
import { WatchNode } from './watch.ts';

export interface StateDBOptions {
  /** Freeze every stored row deeply, so that a change in place throws. For tests: it costs a walk over each row. */
  readonly freeze?: boolean;
  /** Told of a snapshot or stream that was garbage collected undisposed. Default: a process warning. */
  readonly onLeak?: (what: string) => void;
  /** Told of an error thrown by a watch callback; the commit stands. Default: thrown anew as an uncaught exception. */
  readonly onCallbackError?: (error: unknown) => void;
}

interface Leakable {
  readonly what: string;
  release(): void;
}

function warnOfLeak(what: string): void {
  process.emitWarning(`${what} was never disposed: hold it by \`using\`, or call [Symbol.dispose]()`, {
    code: 'STATEDB_LEAK',
  });
}

function throwLater(error: unknown): void {
  queueMicrotask(() => {
    throw error;
  });
}

/** Apart from the code that opens a stream, so that what waits for the stream's collection does not itself hold it. */
function closing<T>(stream: TableStream<T>): () => void {
  return () => stream.close('was opened in a write transaction that aborted');
}

export class MemoryStateDB implements StateDB {
  readonly #history = new History();
  readonly #states = new VersionedMap<TableState>(this.#history);
  readonly #stores = new Map<AnyTable, TableStore<unknown>>();
  readonly #names = new Set<string>();
  readonly #freeze: boolean;
  readonly #onCallbackError: (error: unknown) => void;
  readonly #leaks: FinalizationRegistry<Leakable>;
  #snapshots = 0;
  #active: Transaction | undefined;
  #afterwards: (() => void)[] = [];

  constructor(options: StateDBOptions = {}) {
    enableMapSet();
    this.#freeze = options.freeze ?? false;
    this.#onCallbackError = options.onCallbackError ?? throwLater;
    const onLeak = options.onLeak ?? warnOfLeak;
    this.#leaks = new FinalizationRegistry((leaked) => {
      leaked.release();
      onLeak(leaked.what);
    });
  }

  table<T>(spec: TableSpec<T>): Table<T> {
    if (this.#active !== undefined) throw new ReentrantWriteError('db.table');
    if (this.#names.has(spec.name)) throw new DuplicateTableError(spec.name);
    const store = new TableStore<T>(spec, this.#history, this.#states, this.#freeze);
    this.#names.add(spec.name);
    this.#stores.set(store.handle, store as unknown as TableStore<unknown>);
    return store.handle;
  }

  tables(): readonly AnyTable[] {
    return [...this.#stores.keys()];
  }

  read(): Snapshot {
    const generation = this.#active?.base ?? this.#history.acquire();
    if (this.#active !== undefined) generation.refs++;
    this.#snapshots++;
    const release = (): void => {
      this.#snapshots--;
      this.#history.release(generation);
    };
    const snapshot = new SnapshotView(this.#storeOf, generation, this.#committed, (self) => {
      this.#leaks.unregister(self);
      release();
    });
    this.#leaks.register(snapshot, { what: 'a snapshot', release }, snapshot);
    return snapshot;
  }

  write<R>(tables: readonly AnyTable[], fn: (txn: WriteTxn) => R): R {
    if (this.#active !== undefined) throw new ReentrantWriteError('db.write');
    if (Object.prototype.toString.call(fn) === '[object AsyncFunction]') {
      throw new AsyncWriteError('the function given to write');
    }
    const stores = [...new Set(tables)].map((table) => this.#storeOf(table) as TableStore<unknown>);
    const base = this.#history.acquire();
    const txn = new Transaction(this.#storeOf, base, new Set(tables));
    this.#active = txn;
    const callbacks: (() => void)[] = [];
    let result: R;
    try {
      result = fn(txn);
      if (isThenable(result)) {
        // The caller gets the error that explains; what the abandoned promise does later says nothing more.
        result.then(undefined, () => {});
        throw new AsyncWriteError('the function given to write');
      }
      const plans = stores.map((store) => ({ store, plan: store.plan(base) }));
      for (const { store, plan } of plans) store.commit(base, plan, callbacks);
    } catch (error) {
      rollback(base);
      for (const store of stores) store.abort();
      for (const undo of txn.undo.reverse()) undo();
      this.#end(txn, base);
      throw error;
    }
    this.#end(txn, base);
    for (const callback of callbacks) {
      try {
        callback();
      } catch (error) {
        this.#onCallbackError(error);
      }
    }
    return result;
  }

  changes<T>(table: Table<T>, from: Revision = 0): ChangeStream<T> {
    const store = this.#storeOf(table);
    const current = store.stateAt(this.#committed()).revision;
    if (!Number.isInteger(from) || from < 0 || from > current) {
      throw new InvalidRevisionError(table.name, from, current);
    }
    if (from > 0 && from < store.forgotten) throw new RevisionGoneError(table.name, from, store.forgotten);
    const cursor: Cursor = { revision: from };
    store.cursors.add(cursor);
    const release = (): void => {
      store.cursors.delete(cursor);
      this.#whenIdle(() => store.forgetMarkers());
    };
    const committed = {
      at: this.#committed,
      onAbort: (undo: () => void) => this.#active?.undo.push(undo),
      afterwards: (action: () => void) => this.#whenIdle(action),
    };
    const stream = new TableStream<T>(store, cursor, from === 0 ? current : 0, committed, (self) => {
      this.#leaks.unregister(self);
      release();
    });
    this.#leaks.register(stream, { what: `a change stream of table "${table.name}"`, release }, stream);
    this.#active?.undo.push(closing(stream));
    return stream;
  }

  initialiser<T>(table: Table<T>, name: string): InitDone {
    const store = this.#storeOf(table);
    if (store.initialised.fired) {
      throw new InitialiserError(
        table.name,
        name,
        'the table is initialised already; register before the last one is done',
      );
    }
    const initialiser: Initialiser = { name };
    const register = (): void => {
      const { pending } = store.state;
      if (pending.some((other) => other.name === name)) {
        throw new InitialiserError(table.name, name, 'is pending already; give each initialiser its own name');
      }
      store.setPending([...pending, initialiser]);
    };
    if (this.#active === undefined) this.write([table], register);
    else if (this.#active.tables.has(table)) register();
    else throw new ReentrantWriteError(`db.initialiser on table "${table.name}", which the transaction does not name,`);
    return (txn) => {
      if (txn !== this.#active || !(txn instanceof Transaction)) {
        throw new InitialiserError(table.name, name, 'call it with the running write transaction of this StateDB');
      }
      txn.initialiserDone(table, initialiser);
    };
  }

  pendingInitialisers<T>(table: Table<T>): readonly string[] {
    return this.#storeOf(table)
      .stateAt(this.#committed())
      .pending.map((initialiser) => initialiser.name);
  }

  initialisedWatch<T>(table: Table<T>): Watch {
    const store = this.#storeOf(table);
    return store.stateAt(this.#committed()).pending.length === 0 ? new WatchNode(true) : store.initialised;
  }

  stats(): StateDBStats {
    let markers = 0;
    let streams = 0;
    for (const store of this.#stores.values()) {
      markers += store.markers.size;
      streams += store.cursors.size;
    }
    return { snapshots: this.#snapshots, savedVersions: this.#history.saved, streams, deleteMarkers: markers };
  }

  readonly #storeOf = <T>(table: Table<T>): TableStore<T> => {
    const store = this.#stores.get(table);
    if (store === undefined) throw new UnknownTableError(table.name);
    return store as unknown as TableStore<T>;
  };

  readonly #committed = (): Generation | undefined => this.#active?.base;

  #whenIdle(action: () => void): void {
    if (this.#active === undefined) action();
    else this.#afterwards.push(action);
  }

  #end(txn: Transaction, base: Generation): void {
    txn.close();
    this.#active = undefined;
    this.#history.release(base);
    const actions = this.#afterwards;
    this.#afterwards = [];
    for (const action of actions) action();
  }
}

/** An empty StateDB. */
export function createStateDB(options?: StateDBOptions): StateDB {
  return new MemoryStateDB(options);
}
