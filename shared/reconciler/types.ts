/**
 * Reconciler: drives one table into one target (design section 3).
 *
 * Guarantees: operations are idempotent and are retried with exponential backoff and jitter; nothing is pruned before
 * the table is initialised; what is recorded as done is only what the target acknowledged; a status belongs to one
 * (reconciler, row revision) and is kept beside the table, so several reconcilers never lose each other's status.
 */
import type { Revision, StateDB, Table } from '@weir/statedb';
import type { Clock } from './clock.ts';

/** Target operations. Each is idempotent; a throw (or rejection) is that row's error and is retried. */
export interface Operations<T> {
  update(row: T, revision: Revision): void | Promise<void>;
  /** Removes the row from the target; succeeding when it is already absent. */
  delete(row: T, revision: Revision): void | Promise<void>;
  /** Removes from the target whatever is not among `rows`. Called only once the table is initialised. */
  prune?(rows: Iterable<T>): void | Promise<void>;
  /** Batch forms, used when present. Report each row's failure through `fail`; a throw fails the whole batch. */
  updateBatch?(batch: readonly BatchItem<T>[]): void | Promise<void>;
  deleteBatch?(batch: readonly BatchItem<T>[]): void | Promise<void>;
}

export interface BatchItem<T> {
  readonly row: T;
  readonly revision: Revision;
  fail(error: unknown): void;
}

export type RowStatus =
  | { readonly kind: 'pending'; readonly revision: Revision }
  | { readonly kind: 'done'; readonly revision: Revision }
  | { readonly kind: 'error'; readonly revision: Revision; readonly error: Error; readonly retries: number };

export interface ReconcilerOptions<T> {
  readonly name: string;
  readonly db: StateDB;
  readonly table: Table<T>;
  readonly operations: Operations<T>;
  /** Milliseconds. Default 50. */
  readonly minBackoffMs?: number;
  /** Milliseconds. Default 30_000. */
  readonly maxBackoffMs?: number;
  /** Full prune this often, in milliseconds; 0 (default) = only once after initialisation. */
  readonly pruneIntervalMs?: number;
  /** Re-applies every row this often, in milliseconds; 0 (default) = never. */
  readonly refreshIntervalMs?: number;
  /** Rows per round. Default 1000. */
  readonly batchSize?: number;
  /** At most this many rounds a second; default unlimited. */
  readonly roundsPerSecond?: number;
  /** Called after every failed attempt. `retries` is 0 for the first failure of a row's revision. */
  readonly onError?: (row: T, error: Error, retries: number) => void;
  /** Called after every failed prune of the loop, which is retried with backoff. Default: a process warning. */
  readonly onPruneError?: (error: Error, retries: number) => void;
  /** Operations on single rows that may run at once; beyond 1 (default) their order is not kept. Batches run alone. */
  readonly concurrency?: number;
  /** For tests. Default: the machine's clock, with timers that do not keep the process alive. */
  readonly clock?: Clock;
  /** For tests: jitter, a number in [0, 1). Default `Math.random`. */
  readonly random?: () => number;
}

/** A row that the target has not acknowledged. */
export interface Failure<T> {
  readonly row: T;
  readonly error: Error;
  readonly retries: number;
}

/** What `waitUntil` saw: how far the target is, and what still fails. */
export interface Progress<T> {
  /** Every change up to and including this table revision has been attempted. */
  readonly revision: Revision;
  /** Rows at or below the asked revision that the target has not acknowledged. */
  readonly failing: readonly Failure<T>[];
}

export interface Reconciler<T> {
  readonly name: string;
  /** Starts the loop: rounds run as changes arrive. Not needed when every round is run by `reconcile()`. */
  start(): void;
  /**
   * Stops the loop and lets go of the table's changes; resolves when the running operations have ended. Rows not yet
   * attempted stay pending; whoever waits gets `ReconcilerStoppedError`. May be started again.
   */
  stop(): Promise<void>;
  /**
   * Runs one round now: every change committed before the call, then due retries. Does not prune: call `prune()`. For
   * callers that order several reconcilers themselves; they call `stop()` too when done.
   */
  reconcile(): Promise<Progress<T>>;
  /** Prunes now. Throws `NotInitialisedError` before the table is initialised. */
  prune(): Promise<void>;
  status(key: string): RowStatus | undefined;
  /** Resolves once all changes up to `revision` have been attempted at least once. */
  waitUntil(revision: Revision, signal?: AbortSignal): Promise<Progress<T>>;
  failing(): readonly Failure<T>[];
}
