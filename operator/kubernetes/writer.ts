/**
 * Writes one kind of objects: a reconciler whose requests have few places, which owners take in turns (places.ts). A row that waits for
 * other objects has no place meanwhile.
 */
import { createReconciler, type Reconciler, type ReconcilerOptions } from '@weir/reconciler';
import type { StateDB, Table } from '@weir/statedb';
import { DependencyError } from '../errors.ts';
import type { Desired } from '../tables.ts';
import { Attempts } from './attempts.ts';
import { Places } from './places.ts';

/** Requests of one kind at once. */
export const PLACES = 8;
/** Milliseconds between looks for objects that nobody desires. */
const PRUNE_INTERVAL_MS = 60_000;
/** Milliseconds between attempts at what the API server refuses, at most; a server that answers again is tried at once. */
const LAST_RETRY_MS = 5_000;

export interface Part<T> {
  /** The namespace in whose turn the row is written; '' is that of what has none. */
  readonly ownerOf: (row: T) => string;
  /** Goes before the owner's other rows. */
  readonly isUrgent?: (row: T) => boolean;
  /** Waits for what must be there first. Absent: the newest row is written, once there is a place. */
  readonly ready?: (row: T) => Promise<void>;
  readonly update: (row: T) => Promise<void>;
  readonly delete: (row: T) => Promise<void>;
  readonly prune?: (keys: ReadonlySet<string>) => Promise<void>;
  readonly roundsPerSecond?: number;
}

export interface WriterOptions<T> {
  readonly name: string;
  readonly db: StateDB;
  readonly table: Table<Desired<T>>;
  readonly part: Part<T>;
  /** Default: the machine's clock, and random delays of retries. */
  readonly timing?: Pick<ReconcilerOptions<unknown>, 'clock' | 'random'> | undefined;
  /** `failingMs`: milliseconds since the first attempt that failed, with none since that succeeded. */
  readonly onError: (writer: string, key: string, error: Error, retries: number, failingMs: number) => void;
}

export class Writer<T> {
  readonly reconciler: Reconciler<Desired<T>>;
  readonly #options: WriterOptions<T>;
  readonly #places = new Places(PLACES);
  readonly #attempts: Attempts;

  constructor(options: WriterOptions<T>) {
    this.#options = options;
    const { name, db, table, part, timing, onError } = options;
    const { prune } = part;
    this.reconciler = createReconciler<Desired<T>>({
      ...timing,
      name,
      db,
      table,
      // The places are the limit.
      concurrency: Number.MAX_SAFE_INTEGER,
      maxBackoffMs: LAST_RETRY_MS,
      pruneIntervalMs: PRUNE_INTERVAL_MS,
      ...(part.roundsPerSecond === undefined ? {} : { roundsPerSecond: part.roundsPerSecond }),
      operations: {
        update: (desired) => this.#attempt(desired, () => this.#update(desired)),
        delete: (desired) =>
          this.#attempt(desired, () => this.#places.run(this.#entry(desired), () => part.delete(desired.row))),
        ...(prune === undefined
          ? {}
          : { prune: (rows: Iterable<Desired<T>>) => prune(new Set([...rows].map((row) => table.spec.key(row)))) }),
      },
      onError: (row, error, ...how) => onError(name, table.spec.key(row), error, ...how),
      onPruneError: (error, ...how) => onError(name, 'prune', error, ...how),
    });
    this.#attempts = new Attempts(this.reconciler);
  }

  /** Waits until everything that is desired now has been attempted; how many rows still fail. */
  async settled(signal?: AbortSignal): Promise<number> {
    const { failing } = await this.reconciler.waitUntil(this.#revision(), signal);
    return failing.length;
  }

  /** Waits until these rows, as far as they are desired, have been attempted: in the turns of this owner, too. */
  async attempted(keys: readonly string[], owner: string): Promise<void> {
    const pending = keys.filter((key) => this.#isPending(key));
    for (const key of pending) this.#places.ask(key, owner);
    for (const key of pending) while (this.#isPending(key)) await this.#attempts.next(key);
  }

  /** Finishes the requests that have been made. */
  async stop(): Promise<void> {
    const why = new DependencyError(`the term of this operator ends before its ${this.#options.name} are written`);
    this.#places.close(why);
    this.#attempts.close(why);
    await this.reconciler.stop();
  }

  async #attempt(desired: Desired<T>, write: () => Promise<void>): Promise<void> {
    try {
      await write();
    } finally {
      this.#attempts.ended(this.#options.table.spec.key(desired));
    }
  }

  async #update(desired: Desired<T>): Promise<void> {
    const { ready, update } = this.#options.part;
    const entry = this.#entry(desired);
    if (ready !== undefined) {
      await ready(desired.row);
      await this.#places.run(entry, () => update(desired.row));
      return;
    }
    await this.#places.run(entry, async () => {
      const newest = this.#row(entry.key);
      // One that has gone meanwhile is deleted next.
      if (newest !== undefined) await update(newest);
    });
  }

  #entry(desired: Desired<T>): { readonly key: string; readonly owner: string; readonly urgent: boolean } {
    const { table, part } = this.#options;
    const { row } = desired;
    return { key: table.spec.key(desired), owner: part.ownerOf(row), urgent: part.isUrgent?.(row) ?? false };
  }

  #isPending(key: string): boolean {
    return this.#attempts.isPending(key) && this.#row(key) !== undefined;
  }

  #revision(): number {
    using snapshot = this.#options.db.read();
    return snapshot.revision(this.#options.table);
  }

  #row(key: string): T | undefined {
    using snapshot = this.#options.db.read();
    return snapshot.get(this.#options.table, key)?.row;
  }
}
