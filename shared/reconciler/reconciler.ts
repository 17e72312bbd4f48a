/**
 * The reconciler: pulls a table's changes, carries them out on the target, remembers what the target acknowledged.
 *
 * One thing runs at a time: a round, a prune, or a part of a refresh; `#exclusive` queues them. The loop only decides
 * what is due. Nothing that the target did not acknowledge is ever recorded as done: an outcome is written only after
 * the operation has returned, and only for the revision it was given.
 */
import type { Change, ChangeStream, Revision } from '@weir/statedb';
import type { Outcome } from './apply.ts';
import { apply } from './apply.ts';
import { backoffDelay } from './backoff.ts';
import type { Item } from './book.ts';
import { Book } from './book.ts';
import { Slice } from './clock.ts';
import { NotInitialisedError, ReconcilerStoppedError, toError } from './errors.ts';
import type { Settings } from './settings.ts';
import { settingsOf } from './settings.ts';
import type { Failure, Progress, Reconciler, ReconcilerOptions, RowStatus } from './types.ts';

interface Waiter<T> {
  readonly revision: Revision;
  resolve(progress: Progress<T>): void;
  reject(error: Error): void;
}

export class TableReconciler<T> implements Reconciler<T> {
  readonly name: string;
  readonly #options: Settings<T>;
  readonly #book = new Book<T>();
  readonly #waiters = new Set<Waiter<T>>();
  #stream: ChangeStream<T> | undefined;
  /** Pulled from the stream, not attempted yet. */
  #queue: Item<T>[] = [];
  #attempted: Revision = 0;
  #running: Promise<unknown> = Promise.resolve();
  #loop: Promise<void> | undefined;
  #stopping = false;
  #wake: () => void = () => {};
  #refresh: Iterator<Item<T>> | undefined;
  #refreshAt: number;
  /** When the loop prunes next; infinity when no prune is due by time. */
  #pruneAt = 0;
  #pruneRetries = 0;
  /** The first prune waits until the table's state at initialisation has been attempted. */
  #pruneAfter: Revision | undefined;

  constructor(options: ReconcilerOptions<T>) {
    this.#options = settingsOf(options);
    this.name = options.name;
    this.#refreshAt = this.#nextRefresh();
  }

  start(): void {
    if (this.#loop !== undefined) return;
    this.#stopping = false;
    this.#open();
    this.#loop = this.#run();
  }

  async stop(): Promise<void> {
    this.#stopping = true;
    this.#wake();
    await this.#loop;
    await this.#running;
    this.#loop = undefined;
    this.#stream?.[Symbol.dispose]();
    this.#stream = undefined;
    for (const waiter of this.#waiters) waiter.reject(new ReconcilerStoppedError(this.name, waiter.revision));
    this.#waiters.clear();
    this.#stopping = false;
  }

  reconcile(): Promise<Progress<T>> {
    return this.#exclusive(async () => {
      const target = this.#tableRevision();
      do await this.#changes();
      while (this.#attempted < target && !this.#stopping);
      await this.#retries();
      return this.#progress(this.#attempted);
    });
  }

  prune(): Promise<void> {
    return this.#exclusive(() => this.#prune());
  }

  status(key: string): RowStatus | undefined {
    using snapshot = this.#options.db.read();
    const version = snapshot.getVersioned(this.#options.table, key);
    const item = this.#book.items.get(key);
    if (version === undefined) {
      if (item === undefined) return undefined;
      if (!item.deleted) return { kind: 'pending', revision: snapshot.revision(this.#options.table) };
    } else if (item === undefined || item.deleted || item.revision !== version.revision) {
      return { kind: 'pending', revision: version.revision };
    }
    const { revision, state, error, retries } = item;
    if (state === 'error' && error !== undefined) return { kind: 'error', revision, error, retries };
    return { kind: state === 'done' ? 'done' : 'pending', revision };
  }

  failing(): readonly Failure<T>[] {
    return this.#book.failing();
  }

  waitUntil(revision: Revision, signal?: AbortSignal): Promise<Progress<T>> {
    return new Promise((resolve, reject) => {
      if (this.#attempted >= revision) return resolve(this.#progress(revision));
      if (signal?.aborted) return reject(signal.reason);
      const end = (): void => {
        this.#waiters.delete(waiter);
        signal?.removeEventListener('abort', abort);
      };
      const abort = (): void => {
        end();
        reject(signal?.reason);
      };
      const waiter: Waiter<T> = {
        revision,
        resolve: (progress) => {
          end();
          resolve(progress);
        },
        reject: (error) => {
          end();
          reject(error);
        },
      };
      this.#waiters.add(waiter);
      signal?.addEventListener('abort', abort, { once: true });
    });
  }

  async #run(): Promise<void> {
    while (!this.#stopping) {
      const began = this.#options.clock.now();
      await this.#exclusive(async () => {
        await this.#changes();
        await this.#retries();
        await this.#refreshSome();
        await this.#pruneWhenDue();
      });
      await this.#idle(began + this.#options.roundIntervalMs);
    }
  }

  /** Waits until something is due, and at least until `earliest`. Always lets the event loop run once. */
  async #idle(earliest: number): Promise<void> {
    const { clock, db, table } = this.#options;
    await new Promise<void>((resolve) => setImmediate(resolve));
    await this.#sleep(earliest - clock.now(), []);
    if (this.#stopping || this.#stream === undefined) return;
    const pending = this.#stream.watch();
    const initialised = db.initialisedWatch(table);
    if (this.#queue.length > 0 || pending.fired || this.#refresh !== undefined) return;
    const pruneAt = initialised.fired ? this.#pruneAt : Number.POSITIVE_INFINITY;
    const due = Math.min(this.#book.nextDue() ?? Number.POSITIVE_INFINITY, this.#refreshAt, pruneAt);
    await this.#sleep(due - clock.now(), initialised.fired ? [pending] : [pending, initialised]);
  }

  /** Sleeps for `ms`, until a watch fires, or until `#wake` is called. */
  async #sleep(ms: number, watches: readonly { onFire(callback: () => void): () => void }[]): Promise<void> {
    if (ms <= 0 || this.#stopping) return;
    const undo: (() => void)[] = [];
    await new Promise<void>((resolve) => {
      this.#wake = resolve;
      for (const watch of watches) undo.push(watch.onFire(resolve));
      if (Number.isFinite(ms)) undo.push(this.#options.clock.after(ms, resolve));
    });
    this.#wake = () => {};
    for (const action of undo) action();
  }

  /** Runs `action` after whatever runs now. */
  #exclusive<R>(action: () => Promise<R>): Promise<R> {
    const result = this.#running.then(action);
    this.#running = result.then(
      () => {},
      () => {},
    );
    return result;
  }

  /** Attempts at most one batch of changes. */
  async #changes(): Promise<void> {
    const stream = this.#open();
    const room = this.#options.batchSize - this.#queue.length;
    if (room > 0) await this.#record(stream.next(room));
    const items = this.#queue;
    this.#queue = [];
    const left = await this.#apply(items.filter((item) => this.#book.current(item)));
    this.#queue.push(...left);
    if (left.length > 0) return;
    this.#attempted = Math.max(this.#attempted, stream.revision);
    for (const waiter of this.#waiters) {
      if (waiter.revision <= this.#attempted) waiter.resolve(this.#progress(waiter.revision));
    }
  }

  async #record(changes: readonly Change<T>[]): Promise<void> {
    const slice = new Slice();
    for (const change of changes) {
      const key = this.#options.table.spec.key(change.row);
      const known = this.#book.items.get(key);
      // After a restart the stream begins anew: what the target has acknowledged is not repeated.
      if (known !== undefined && known.revision === change.revision && known.state !== 'pending') continue;
      this.#queue.push(this.#book.record(key, change));
      const pause = slice.pause();
      if (pause !== undefined) await pause;
    }
  }

  async #retries(): Promise<void> {
    if (this.#stopping) return;
    const due = this.#book.takeDue(this.#options.clock.now(), this.#options.batchSize);
    for (const item of await this.#apply(due)) this.#book.putBack(item);
  }

  /** Applies again one batch of acknowledged rows when a refresh is due or under way. */
  async #refreshSome(): Promise<void> {
    if (this.#refresh === undefined) {
      if (this.#options.clock.now() < this.#refreshAt) return;
      this.#refresh = this.#book.items.values();
    }
    const items: Item<T>[] = [];
    while (items.length < this.#options.batchSize) {
      const next = this.#refresh.next();
      if (next.done === true) {
        this.#refresh = undefined;
        this.#refreshAt = this.#nextRefresh();
        break;
      }
      if (next.value.state === 'done') items.push(next.value);
    }
    await this.#apply(items);
  }

  #nextRefresh(): number {
    const { clock, refreshIntervalMs } = this.#options;
    return refreshIntervalMs === 0 ? Number.POSITIVE_INFINITY : clock.now() + refreshIntervalMs;
  }

  async #pruneWhenDue(): Promise<void> {
    const { clock, db, table, minBackoffMs, maxBackoffMs, random, onPruneError } = this.#options;
    if (this.#stopping || clock.now() < this.#pruneAt || !db.initialisedWatch(table).fired) return;
    this.#pruneAfter ??= this.#tableRevision();
    if (this.#attempted < this.#pruneAfter) return;
    try {
      await this.#prune();
    } catch (error) {
      this.#pruneAt = clock.now() + backoffDelay(this.#pruneRetries, minBackoffMs, maxBackoffMs, random);
      this.#guard(() => onPruneError(toError(error), this.#pruneRetries++));
    }
  }

  /** Only what one and the same snapshot calls complete is given to the target's prune. */
  async #prune(): Promise<void> {
    const { clock, db, table, operations, pruneIntervalMs } = this.#options;
    using snapshot = db.read();
    if (!snapshot.initialised(table)) {
      throw new NotInitialisedError(this.name, table.name, db.pendingInitialisers(table));
    }
    await operations.prune?.({ [Symbol.iterator]: () => snapshot.all(table) });
    this.#pruneRetries = 0;
    this.#pruneAt = pruneIntervalMs === 0 ? Number.POSITIVE_INFINITY : clock.now() + pruneIntervalMs;
  }

  #apply(items: readonly Item<T>[]): Promise<readonly Item<T>[]> {
    const { operations, concurrency } = this.#options;
    const stopped = (): boolean => this.#stopping;
    return apply(items, { name: this.name, operations, concurrency, outcome: this.#outcome, stopped });
  }

  readonly #outcome: Outcome<T> = {
    succeeded: (item) => this.#book.succeeded(item),
    failed: (item, error) => {
      const { clock, minBackoffMs, maxBackoffMs, random, onError } = this.#options;
      this.#book.failed(item, error, clock.now(), (retries) =>
        backoffDelay(retries, minBackoffMs, maxBackoffMs, random),
      );
      this.#guard(() => onError(item.row, error, item.retries));
    },
  };

  /** A callback that throws is a defect of its owner: it surfaces as an uncaught exception, and the loop goes on. */
  #guard(callback: () => void): void {
    try {
      callback();
    } catch (error) {
      queueMicrotask(() => {
        throw error;
      });
    }
  }

  #progress(until: Revision): Progress<T> {
    return { revision: this.#attempted, failing: this.#book.failing(until) };
  }

  #tableRevision(): Revision {
    using snapshot = this.#options.db.read();
    return snapshot.revision(this.#options.table);
  }

  /** Opens the stream. Rows known from an earlier run and gone since are deleted. */
  #open(): ChangeStream<T> {
    if (this.#stream !== undefined) return this.#stream;
    const { db, table } = this.#options;
    this.#stream = db.changes(table);
    if (this.#book.items.size === 0) return this.#stream;
    using snapshot = db.read();
    const revision = snapshot.revision(table);
    for (const [key, { row, deleted }] of this.#book.items) {
      if (deleted || snapshot.has(table, key)) continue;
      this.#queue.push(this.#book.record(key, { row, revision, deleted: true }));
    }
    return this.#stream;
  }
}

/** A reconciler of `options.table`; nothing happens until `start()` or `reconcile()`. Throws `InvalidOptionError`. */
export function createReconciler<T>(options: ReconcilerOptions<T>): Reconciler<T> {
  return new TableReconciler(options);
}
