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
} from './errors.ts';
import { type Held, OpenSnapshots, type SnapshotOwner, SnapshotReader } from './reader.ts';
import { storeOf, TableStore } from './table.ts';
import { refuseAsync, Transaction } from './transaction.ts';
import type {
  AnyTable,
  ChangeStream,
  ChangesOptions,
  IndexSpec,
  InitDone,
  Query,
  Snapshot,
  StateDB,
  StateDBStats,
  Table,
  TableInfo,
  TableSpec,
  Watch,
  WriteTxn,
} from './types.ts';
import { Edits, type View } from './view.ts';
import { Views } from './views.ts';
import { WatchNode } from './watch.ts';

/** Options of `createStateDB`. */
export interface StateDBOptions {
  /** Freeze every stored row deeply, so that a change in place throws. For tests: it costs a walk over each row. */
  readonly freeze?: boolean;
  /**
   * Tell `onLeak` of a snapshot that was garbage collected undisposed. For tests: it costs a microsecond a snapshot. Default: as
   * `freeze`. Streams, which hold delete markers, are always watched for.
   */
  readonly findLeaks?: boolean;
  /**
   * Count the snapshots that are not disposed, so that a forgotten one shows in `stats()` and metrics: it costs 3 ns a snapshot.
   * Default: as `findLeaks`, which needs it.
   */
  readonly countSnapshots?: boolean;
  /** Told of a snapshot or stream that was garbage collected undisposed. Default: a process warning. */
  readonly onLeak?: (what: string) => void;
  /** Told of an error thrown by a watch callback; the commit stands. Default: thrown anew as an uncaught exception. */
  readonly onCallbackError?: (error: unknown) => void;
}

/** What nobody may lose. */
interface Leak extends Held {
  readonly what: string;
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

const AsyncFunction = (async () => {}).constructor;

export class MemoryStateDB implements StateDB, SnapshotOwner {
  readonly edits = new Edits();
  readonly #stores = new Map<string, TableStore<unknown>>();
  readonly #freeze: boolean;
  readonly #onCallbackError: (error: unknown) => void;
  readonly #leaks: FinalizationRegistry<Leak>;
  readonly #findLeaks: boolean;
  /** Undefined where snapshots are not counted. */
  readonly #open: OpenSnapshots | undefined;
  #views = new Views<View<unknown>>();
  #watchesFired = 0;
  #active: Transaction | undefined;
  #afterwards: (() => void)[] = [];

  constructor(options: StateDBOptions = {}) {
    enableMapSet();
    this.#freeze = options.freeze ?? false;
    this.#findLeaks = options.findLeaks ?? this.#freeze;
    this.#onCallbackError = options.onCallbackError ?? throwLater;
    const onLeak = options.onLeak ?? warnOfLeak;
    this.#leaks = new FinalizationRegistry((leaked) => {
      leaked.release();
      onLeak(leaked.what);
    });
    if (this.#findLeaks || options.countSnapshots === true) this.#open = new OpenSnapshots();
  }

  get views(): Views<View<unknown>> {
    return this.#views;
  }

  table<T, I extends string = string>(spec: TableSpec<T, I>): Table<T, I> {
    if (this.#active !== undefined) throw new ReentrantWriteError('db.table');
    if (this.#stores.has(spec.name)) throw new DuplicateTableError(spec.name);
    const store = new TableStore<T>(spec, this.#views.length, this.edits, this.#freeze);
    this.#stores.set(spec.name, store as unknown as TableStore<unknown>);
    this.#publish(store);
    return store.handle as Table<T, I>;
  }

  addIndex<T>(table: Table<T>, spec: IndexSpec<T>): void {
    const store = storeOf(table, this.edits);
    if (this.#active !== undefined) throw new ReentrantWriteError('db.addIndex');
    store.addIndex(spec);
    this.#publish(store);
  }

  read(): Snapshot {
    return this.#open === undefined ? new SnapshotReader(this) : this.#counted(this.#open);
  }

  /** Apart from `read`, which V8 then compiles into its callers together with what makes a snapshot. */
  #counted(open: OpenSnapshots): Snapshot {
    open.count++;
    if (!this.#findLeaks) return new SnapshotReader(this, open);
    const leak: Leak = {
      what: 'a snapshot',
      release: () => {
        this.#leaks.unregister(leak);
        open.release();
      },
    };
    const snapshot = new SnapshotReader(this, leak);
    this.#leaks.register(snapshot, leak, leak);
    return snapshot;
  }

  write<R>(tables: readonly AnyTable[], fn: (txn: WriteTxn) => R): R {
    if (this.#active !== undefined) throw new ReentrantWriteError('db.write');
    if (fn instanceof AsyncFunction) throw new AsyncWriteError('the function given to write');
    const stores = tables.map((table) => storeOf<unknown>(table, this.edits));
    const txn = new Transaction(this, stores);
    for (const store of stores) store.seal();
    this.#active = txn;
    const fire: WatchNode[] = [];
    let result: R;
    try {
      result = fn(txn);
      refuseAsync(result, 'the function given to write');
      for (const store of stores) store.prepare(fire);
    } catch (error) {
      for (const store of stores) store.abort();
      if (txn.undo !== undefined) for (const undo of txn.undo.reverse()) undo();
      this.#end(txn);
      throw error;
    }
    for (const store of stores) {
      store.commit();
      this.#publish(store);
    }
    this.#end(txn);
    if (fire.length > 0) this.#fire(fire);
    return result;
  }

  changes<T>(table: Table<T>, options: ChangesOptions = {}): ChangeStream<T> {
    const store = storeOf(table, this.edits);
    const { from = 0, name = '' } = options;
    const current = store.committed.revision;
    const { forgotten } = store.history;
    if (!Number.isInteger(from) || from < 0 || from > current) {
      throw new InvalidRevisionError(table.name, from, current);
    }
    if (from > 0 && from < forgotten) throw new RevisionGoneError(table.name, from, forgotten);
    const place = store.history.open(name, from);
    const release = (): void => this.#whenIdle(() => store.history.close(place));
    const running = {
      onAbort: (undo: () => void) => this.#onAbort(undo),
      afterwards: (action: () => void) => this.#whenIdle(action),
    };
    const stream = new TableStream<T>(store, place, from === 0 ? current : 0, running, (self) => {
      this.#leaks.unregister(self);
      release();
    });
    this.#leaks.register(stream, { what: `a change stream of table "${table.name}"`, release }, stream);
    this.#onAbort(closing(stream));
    return stream;
  }

  async waitFor<T>(
    query: Query<T>,
    predicate: (rows: readonly T[]) => boolean,
    signal?: AbortSignal,
  ): Promise<readonly T[]> {
    for (;;) {
      signal?.throwIfAborted();
      const { rows, watch } = this.#ask(query);
      if (predicate(rows)) return rows;
      await watch.wait(signal);
    }
  }

  #ask<T>(query: Query<T>) {
    using snapshot = this.read();
    return snapshot.watch(query);
  }

  initialiser<T>(table: Table<T>, name: string): InitDone {
    const store = storeOf(table, this.edits);
    const register = (): void => {
      const { pending } = store.current;
      if (pending.includes(name)) {
        throw new InitialiserError(table.name, name, 'is pending already; give each initialiser its own name');
      }
      if (store.committed.complete) {
        throw new InitialiserError(
          table.name,
          name,
          'the table is initialised already; register before the last one is done',
        );
      }
      store.setPending([...pending, name]);
    };
    if (this.#active === undefined) this.write([table], register);
    else if (this.#active.writes(store)) register();
    else throw new ReentrantWriteError(`db.initialiser on table "${table.name}", which the transaction does not name,`);
    return (txn) => {
      if (txn !== this.#active || !(txn instanceof Transaction)) {
        throw new InitialiserError(table.name, name, 'call it with the running write transaction of this StateDB');
      }
      txn.initialiserDone(table, name);
    };
  }

  pendingInitialisers<T>(table: Table<T>): readonly string[] {
    return storeOf(table, this.edits).committed.pending;
  }

  initialisedWatch<T>(table: Table<T>): Watch {
    const store = storeOf(table, this.edits);
    return store.committed.pending.length === 0 ? new WatchNode(true) : store.watches.initialised.node;
  }

  tables(): readonly TableInfo[] {
    return [...this.#stores.values()].map((store) => {
      const { count, revision, pending } = store.committed;
      return {
        table: store.handle,
        name: store.spec.name,
        rows: count,
        revision,
        indexes: store.indexNames,
        pending,
        streams: [...store.history.places()].map((place) => ({
          name: place.name,
          revision: place.revision,
          lag: revision - place.revision,
        })),
        deleteMarkers: store.history.markers,
        watches: store.watches.size,
      };
    });
  }

  stats(): StateDBStats {
    let deleteMarkers = 0;
    let streams = 0;
    for (const { history } of this.#stores.values()) {
      deleteMarkers += history.markers;
      streams += history.streams;
    }
    return { snapshots: this.#open?.count, streams, deleteMarkers, watchesFired: this.#watchesFired };
  }

  #publish<T>(store: TableStore<T>): void {
    this.#views = this.#views.with(store.number, store.committed as View<unknown>);
  }

  #fire(nodes: readonly WatchNode[]): void {
    const callbacks: (() => void)[] = [];
    for (const node of nodes) {
      if (!node.fired) this.#watchesFired++;
      node.fire(callbacks);
    }
    for (const callback of callbacks) {
      try {
        callback();
      } catch (error) {
        this.#onCallbackError(error);
      }
    }
  }

  #onAbort(undo: () => void): void {
    if (this.#active === undefined) return;
    this.#active.undo ??= [];
    this.#active.undo.push(undo);
  }

  #whenIdle(action: () => void): void {
    if (this.#active === undefined) action();
    else this.#afterwards.push(action);
  }

  #end(txn: Transaction): void {
    txn.close();
    this.#active = undefined;
    if (this.#afterwards.length === 0) return;
    const actions = this.#afterwards;
    this.#afterwards = [];
    for (const action of actions) action();
  }
}

/** An empty StateDB. */
export function createStateDB(options?: StateDBOptions): StateDB {
  return new MemoryStateDB(options);
}
