/**
 * Writes one kind of objects: a reconciler whose requests have few places, which owners take in turns (places.ts). A row that waits for
 * other objects has no place meanwhile.
 */
import { createReconciler, type Reconciler, type ReconcilerOptions } from '@weir/reconciler';
import type { StateDB, Table } from '@weir/statedb';
import { DependencyError } from '../errors.ts';
import type { DesiredKind } from '../parts/contract.ts';
import type { Desired } from '../tables.ts';
import { Attempts } from './attempts.ts';
import { Places } from './places.ts';

/** Requests of one kind at once. */
export const PLACES = 8;
/** Milliseconds between looks for objects that nobody desires. */
const PRUNE_INTERVAL_MS = 60_000;
/** Milliseconds between attempts at what the API server refuses, at most; a server that answers again is tried at once. */
const LAST_RETRY_MS = 5_000;
/**
 * Milliseconds, twice, that a stop waits for what is being written. A write that nobody answers keeps the lease from being given back, and whoever
 * leads next waits for its end.
 */
const STOP_GRACE_MS = 1_500;

export interface WriterOptions<T> {
  readonly db: StateDB;
  readonly kind: DesiredKind<T>;
  /** Default: the machine's clock, random delays of retries, and STOP_GRACE_MS. */
  readonly timing?: Pick<ReconcilerOptions<unknown>, 'clock' | 'random' | 'stopGraceMs'> | undefined;
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
    const { db, kind, timing, onError } = options;
    const { name, table, prune } = kind;
    const newest = async (old: T): Promise<void> => {
      const row = this.#row(table.spec.key({ row: old, touch: 0 }));
      // One that has gone meanwhile is deleted next.
      if (row !== undefined) await kind.update(row);
    };
    this.reconciler = createReconciler<Desired<T>>({
      stopGraceMs: STOP_GRACE_MS,
      ...timing,
      name,
      db,
      table,
      // The places are the limit.
      concurrency: Number.MAX_SAFE_INTEGER,
      maxBackoffMs: LAST_RETRY_MS,
      pruneIntervalMs: PRUNE_INTERVAL_MS,
      ...(kind.roundsPerSecond === undefined ? {} : { roundsPerSecond: kind.roundsPerSecond }),
      operations: {
        update: (desired) => this.#write(desired, kind.ready, kind.ready === undefined ? newest : kind.update),
        delete: (desired) => this.#write(desired, undefined, kind.delete),
        ...(prune === undefined
          ? {}
          : { prune: (rows: Iterable<Desired<T>>) => prune(new Set([...rows].map((row) => table.spec.key(row)))) }),
      },
      onError: (row, error, ...how) => onError(name, table.spec.key(row), error, ...how),
      onPruneError: (error, ...how) => onError(name, 'prune', error, ...how),
    });
    this.#attempts = new Attempts(this.reconciler, timing?.clock);
  }

  get table(): Table<Desired<T>> {
    return this.#options.kind.table;
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
    for (const key of pending) {
      while (this.#isPending(key)) await this.#attempts.next(key);
      // It may have been under way already, and none may ever come again.
      this.#places.forget(key);
    }
  }

  /** Finishes the requests that have been made. */
  async stop(): Promise<void> {
    const why = new DependencyError(`the term of this operator ends before its ${this.#options.kind.name} are written`);
    this.#places.close(why);
    this.#attempts.close(why);
    await this.reconciler.stop();
  }

  /** One function, as what it keeps is kept for each row that waits. */
  async #write(desired: Desired<T>, ready: DesiredKind<T>['ready'], request: (row: T) => Promise<void>): Promise<void> {
    const entry = this.#entry(desired);
    try {
      await ready?.(desired.row);
      await this.#places.enter(entry);
      try {
        await request(desired.row);
      } finally {
        this.#places.leave();
      }
    } finally {
      this.#attempts.ended(entry.key);
    }
  }

  #entry(desired: Desired<T>): { readonly key: string; readonly owner: string; readonly urgent: boolean } {
    const { kind } = this.#options;
    const { row } = desired;
    return { key: kind.table.spec.key(desired), owner: kind.ownerOf(row), urgent: kind.isUrgent?.(row) ?? false };
  }

  #isPending(key: string): boolean {
    return this.#attempts.isPending(key) && this.#row(key) !== undefined;
  }

  #revision(): number {
    using snapshot = this.#options.db.read();
    return snapshot.revision(this.table);
  }

  #row(key: string): T | undefined {
    using snapshot = this.#options.db.read();
    return snapshot.get(this.table, key)?.row;
  }
}
