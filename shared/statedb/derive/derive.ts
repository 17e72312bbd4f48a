/**
 * Derived tables: keeps a table equal to a pure function of other tables, and evaluates anew only what a change touches.
 *
 * Guarantees:
 * - A unit is one row of the driving table, the first of `inputs`. It is evaluated when its row is new, and anew exactly
 *   when its row or the answer to a query that it made has changed.
 * - `into` always equals the function at one instant of all inputs: one write transaction a flush, and a run that takes
 *   long shows nothing before its end. Rows that are equal are not written.
 * - Where two units put out the same key, the row of the smallest driving key stands; once it goes, the next one's does.
 * - A unit whose function throws keeps its last good rows and is tried again when its inputs change; so does a row that
 *   `into` refuses, at every flush. Neither stands in the way of the others. Both are reported.
 * - It runs by itself after commits, in slices, so that the event loop runs; only the transaction at the end, of
 *   the rows that differ, is not sliced.
 * - `into` is initialised when every input is, and every unit has been evaluated at such an instant.
 */

import { ReentrantWriteError } from '../errors.ts';
import type { AnyTable, ChangeStream, InitDone, Key, Snapshot, StateDB, Table } from '../types.ts';
import { DerivationDisposedError, DeriveInputError } from './errors.ts';
import { Outputs, type Refusal } from './outputs.ts';
import { type DeriveReader, type Read, Reads } from './reads.ts';

/** What a derived table is made of. */
export interface DeriveOptions<In, Out> {
  /** Names the derivation's stream and the initialiser of `into`. */
  readonly name: string;
  /** Written by this derivation alone: rows that others put there are lost or left over. */
  readonly into: Table<Out>;
  /** The driving table, then every other table that `fn` reads. */
  readonly inputs: readonly [Table<In>, ...AnyTable[]];
  /** The rows of `into` that one row of the driving table makes. Pure: of `row` and the answers of `read` alone. Of rows with one key the first counts. */
  readonly fn: (row: In, read: DeriveReader) => Iterable<Out>;
  /** Rows that are equal are not written; beside the `equals` of the table. */
  readonly equals?: (a: Out, b: Out) => boolean;
  /** Told of each failure as it happens. Default: a process warning. */
  readonly onError?: (failure: DeriveFailure) => void;
  /** Milliseconds that a run by itself holds the event loop before it lets others run. Default 5. */
  readonly slice?: number;
}

/** What could not be derived. */
export interface DeriveFailure {
  /** The key of the row of the driving table. */
  readonly key: Key;
  /** What `fn` threw, or why `into` refused the row. */
  readonly error: unknown;
}

/** A derived table at work. Disposing of it ends it, and leaves the rows of `into` as they are. */
export interface Derivation extends Disposable {
  readonly name: string;
  /** Brings `into` up to date now, in one go; also when stopped. Throws `ReentrantWriteError` within a transaction. */
  flush(): void;
  /** Runs by itself from here on, also for what changed since `stop`. A derivation begins started. */
  start(): void;
  /** Does not run by itself any more, but goes on remembering what has changed. */
  stop(): void;
  /** What fails at present, by driving key. */
  failing(): readonly DeriveFailure[];
}

interface Unit<Out> {
  readonly key: Key;
  outputs: ReadonlyMap<Key, Out>;
  reads: Set<Read<Unit<Out>>>;
  error: { readonly cause: unknown } | undefined;
}

/** A run between its beginning and its publication: everything is evaluated as of `snapshot`. */
interface Run {
  readonly snapshot: Snapshot;
  readonly todo: IterableIterator<Key>;
}

const SLICE_MS = 5;
const PULL = 1000;
const NONE: ReadonlyMap<Key, never> = new Map<Key, never>();

class DerivedTable<In, Out> implements Derivation {
  readonly #db: StateDB;
  readonly #options: DeriveOptions<In, Out>;
  readonly #driving: Table<In>;
  readonly #stream: ChangeStream<In>;
  readonly #reads: Reads<Unit<Out>>;
  readonly #outputs: Outputs<Out>;
  readonly #units = new Map<Key, Unit<Out>>();
  #dirty = new Set<Key>();
  #run: Run | undefined;
  #initDone: InitDone | undefined;
  #began = false;
  #busy = false;
  #running = true;
  #disposed = false;
  #scheduled = false;
  /** Something has happened since the run began. */
  #woken = false;
  #unfollow = (): void => {};
  #unawait = (): void => {};
  #later: NodeJS.Immediate | undefined;

  constructor(db: StateDB, options: DeriveOptions<In, Out>) {
    const { name, into, inputs } = options;
    if (inputs.some((input) => input === into)) {
      throw new DeriveInputError(name, into.name, 'is both `into` and among `inputs`; derive into a table of its own');
    }
    this.#db = db;
    this.#options = options;
    this.#driving = inputs[0];
    for (const input of inputs) db.pendingInitialisers(input);
    this.#stream = db.changes(this.#driving, { name });
    try {
      this.#initDone = db.initialiser(into, name);
    } catch (error) {
      this.#stream[Symbol.dispose]();
      throw error;
    }
    this.#reads = new Reads(name, inputs, (unit) => {
      this.#dirty.add(unit.key);
      this.#schedule();
    });
    this.#outputs = new Outputs(into, options.equals);
    this.#follow();
    this.#schedule();
  }

  get name(): string {
    return this.#options.name;
  }

  flush(): void {
    this.#check();
    // Throws within a transaction, before anything has moved.
    this.#db.write([], () => {});
    if (this.#busy) throw new ReentrantWriteError(`flush of derivation "${this.name}"`);
    if (this.#run !== undefined) this.#advance(Number.POSITIVE_INFINITY);
    this.#advance(Number.POSITIVE_INFINITY);
  }

  start(): void {
    this.#check();
    this.#running = true;
    this.#schedule();
  }

  stop(): void {
    this.#running = false;
    this.#scheduled = false;
    if (this.#later !== undefined) clearImmediate(this.#later);
    this.#later = undefined;
    const run = this.#run;
    if (run === undefined) return;
    // What has been evaluated stands, unless it has changed since; what has not is left for the next run.
    for (const key of run.todo) this.#dirty.add(key);
    this.#endRun(run);
  }

  failing(): readonly DeriveFailure[] {
    const failing: DeriveFailure[] = [...this.#outputs.refused.values()];
    for (const { key, error } of this.#units.values()) if (error) failing.push({ key, error: error.cause });
    return failing.sort((a, b) => (a.key < b.key ? -1 : a.key > b.key ? 1 : 0));
  }

  [Symbol.dispose](): void {
    if (this.#disposed) return;
    this.stop();
    this.#disposed = true;
    this.#unfollow();
    this.#unawait();
    this.#stream[Symbol.dispose]();
    for (const unit of this.#units.values()) for (const read of unit.reads) this.#reads.release(read, unit);
    this.#units.clear();
  }

  #check(): void {
    if (this.#disposed) throw new DerivationDisposedError(this.name);
  }

  /** Runs soon. Commits of one iteration of the event loop are seen together. */
  #schedule(): void {
    this.#woken = true;
    if (!this.#running || this.#scheduled) return;
    this.#scheduled = true;
    queueMicrotask(() => {
      if (this.#scheduled && this.#later === undefined) this.#slice();
    });
  }

  #slice(): void {
    this.#later = undefined;
    this.#scheduled = false;
    if (!this.#advance(performance.now() + (this.#options.slice ?? SLICE_MS))) {
      this.#scheduled = true;
      this.#later = setImmediate(() => this.#slice());
    } else if (this.#woken) this.#schedule();
  }

  /** Wakes on the next change of the driving table. */
  #follow(): void {
    this.#unfollow();
    this.#unfollow = this.#stream.watch().onFire(() => this.#schedule());
  }

  /** Works until done or until the time `end` of `performance.now()`. Returns whether it is done, and published. */
  #advance(end: number): boolean {
    this.#busy = true;
    try {
      if (this.#run === undefined) {
        if (!this.#pull(end)) return false;
        this.#woken = false;
        this.#follow();
        const todo = this.#dirty;
        this.#dirty = new Set();
        this.#reads.begin();
        this.#run = { snapshot: this.#db.read(), todo: todo.keys() };
      }
      const run = this.#run;
      // A set's iterator goes on where the last slice left it.
      for (const key of run.todo) {
        this.#evaluate(run.snapshot, key);
        if (performance.now() > end) return false;
      }
      this.#publish(run);
      return true;
    } finally {
      this.#busy = false;
    }
  }

  /** Marks the units whose rows have changed. Returns whether that is all of them. */
  #pull(end: number): boolean {
    for (;;) {
      const changes = this.#stream.next(PULL);
      if (changes.length === 0) return true;
      for (const { row } of changes) this.#dirty.add(this.#driving.spec.key(row));
      if (performance.now() > end) return false;
    }
  }

  #evaluate(snapshot: Snapshot, key: Key): void {
    const row = snapshot.get(this.#driving, key);
    if (row === undefined) {
      this.#remove(key);
      return;
    }
    const unit = this.#units.get(key) ?? { key, outputs: NONE, reads: new Set(), error: undefined };
    this.#units.set(key, unit);
    const reads: Unit<Out>['reads'] = new Set();
    try {
      this.#outputs.set(
        unit,
        this.#reads.record(unit, snapshot, reads, (read) => this.#collect(row, read)),
      );
      unit.error = undefined;
    } catch (cause) {
      unit.error = { cause };
      this.#report({ key, error: cause });
    }
    for (const read of unit.reads) if (!reads.has(read)) this.#reads.release(read, unit);
    unit.reads = reads;
  }

  #remove(key: Key): void {
    const unit = this.#units.get(key);
    if (unit === undefined) return;
    this.#outputs.set(unit, NONE);
    for (const read of unit.reads) this.#reads.release(read, unit);
    this.#units.delete(key);
  }

  #collect(row: In, read: DeriveReader): ReadonlyMap<Key, Out> {
    let outputs: Map<Key, Out> | undefined;
    for (const output of this.#options.fn(row, read)) {
      const key = this.#options.into.spec.key(output);
      outputs ??= new Map();
      if (!outputs.has(key)) outputs.set(key, output);
    }
    return outputs ?? NONE;
  }

  #publish(run: Run): void {
    const { into, inputs } = this.#options;
    if (!this.#began) {
      // Rows that were there before: nobody may put them out.
      for (const row of run.snapshot.all(into)) this.#outputs.touch(into.spec.key(row));
      this.#began = true;
    }
    const missing = inputs.find((input) => !run.snapshot.initialised(input));
    const initDone = missing === undefined ? this.#initDone : undefined;
    this.#unawait();
    if (missing !== undefined && this.#initDone !== undefined) {
      this.#unawait = this.#db.initialisedWatch(missing).onFire(() => this.#schedule());
    }
    this.#endRun(run);
    if (initDone === undefined && !this.#outputs.pending) return;
    const before = this.#outputs.refused;
    const refused = this.#db.write([into], (txn) => {
      initDone?.(txn);
      return this.#outputs.write(txn);
    });
    if (initDone !== undefined) this.#initDone = undefined;
    this.#outputs.written(refused);
    for (const [key, refusal] of refused) if (!known(before.get(key), refusal)) this.#report(refusal);
  }

  #endRun(run: Run): void {
    this.#run = undefined;
    run.snapshot[Symbol.dispose]();
  }

  #report(failure: DeriveFailure): void {
    const { onError } = this.#options;
    if (onError !== undefined) {
      try {
        onError(failure);
      } catch (error) {
        queueMicrotask(() => {
          throw error;
        });
      }
      return;
    }
    const message = failure.error instanceof Error ? failure.error.message : String(failure.error);
    process.emitWarning(`derivation "${this.name}", row ${JSON.stringify(failure.key)}: ${message}`, {
      code: 'STATEDB_DERIVE',
    });
  }
}

/** The same row is refused for the same reason: said already. */
function known(before: Refusal | undefined, now: Refusal): boolean {
  return before?.key === now.key && String(before.error) === String(now.error);
}

/**
 * Keeps `into` equal to `fn` of every row of the first of `inputs`. Starts by itself. Throws `DeriveInputError` when
 * `into` is among the inputs, `InitialiserError` when `into` is initialised already.
 */
export function derive<In, Out>(db: StateDB, options: DeriveOptions<In, Out>): Derivation {
  return new DerivedTable(db, options);
}
