/**
 * Reconciler: drives one StateDB table into one target.
 *
 * Guarantees:
 * - Every change of the table reaches the target, or is superseded by a newer change of the same row that does. What
 *   fails is tried again, with exponential backoff and full jitter, until it succeeds or the row changes.
 * - Realised is only what the target acknowledged: a row is `done` when the operation on its newest revision has
 *   returned without an error, and not before.
 * - Operations on one row never overlap and never run out of order. Operations on different rows begin in the order of
 *   their changes; they overlap up to `concurrency`. Where a batch form exists, deletes of a round come before its updates.
 * - Status is kept beside the table, in the reconciler: several reconcilers on one table know nothing of each other.
 *   It is kept only for rows that are not done, so that a table at rest costs no memory here.
 * - Nothing is pruned or refreshed before every input table is initialised.
 * - Synchronous operations are run in slices: the event loop runs after at most 5 ms plus one operation.
 */
import type { AnyTable, Revision, StateDB, Table } from '@weir/statedb';
import type { Clock } from './clock.ts';

/**
 * What can be done to the target. Every operation is idempotent; a throw or a rejection is a failure and is tried again.
 * The signal is aborted when `operationTimeoutMs` is over or when `stop()` has waited for `stopGraceMs`. An operation
 * that ignores it keeps its row, and its place among `concurrency`, until it ends; whoever waits is answered meanwhile.
 */
export interface Operations<T> {
  /** Makes the target hold the row. */
  update(row: T, revision: Revision, signal: AbortSignal): void | Promise<void>;
  /** Makes the target not hold the row. Succeeds when it is absent already. `row` is the last that was in the table. */
  delete(row: T, revision: Revision, signal: AbortSignal): void | Promise<void>;
  /** Removes from the target whatever is not among `rows`, which may be iterated several times until it returns. */
  prune?(rows: Iterable<T>, signal: AbortSignal): void | Promise<void>;
  /**
   * Batch forms, used instead of the single ones where present; one at a time, and never beside other operations.
   * `item.fail()` says that one row failed. A `BatchStoppedError` says how far a batch came: the rows after the one that
   * failed are given again at once. After any other throw it is not known which row was to blame: all rows not yet
   * failed by `fail()` fail, and are tried again in ever smaller batches until the row to blame is alone.
   */
  updateBatch?(batch: readonly BatchItem<T>[], signal: AbortSignal): void | Promise<void>;
  deleteBatch?(batch: readonly BatchItem<T>[], signal: AbortSignal): void | Promise<void>;
}

/** A row of a batch, which the target may refuse by itself. */
export interface BatchItem<T> {
  readonly row: T;
  readonly revision: Revision;
  /** Says that the target did not take this row. Call it as a method. Throws `LateFailureError` once the batch has ended. */
  fail(error: unknown): void;
}

/** What is known of a row at the target. */
export type RowStatus =
  /** The target has not been asked for this revision yet, or has not answered. */
  | { readonly kind: 'pending'; readonly revision: Revision }
  /** The target holds this revision. */
  | { readonly kind: 'done'; readonly revision: Revision }
  | {
      readonly kind: 'error';
      readonly revision: Revision;
      /** Of the last attempt. */
      readonly error: Error;
      /** Attempts at this revision that have failed; from 1. */
      readonly attempt: number;
      /** Milliseconds on the reconciler's clock: when the next attempt is due. Passed while that attempt runs. */
      readonly nextRetryAt: number;
    };

/** A row that the target has refused and not acknowledged since. */
export interface Failure<T> {
  readonly key: string;
  readonly row: T;
  readonly revision: Revision;
  /** The row is to be deleted. */
  readonly deleted: boolean;
  readonly error: Error;
  /** Failed attempts at this revision; 0 when it has not been tried yet and the error is of an older one. */
  readonly attempt: number;
  /** As in `RowStatus`. */
  readonly nextRetryAt: number;
}

/** How far the target is, and what still fails. */
export interface Progress<T> {
  /** Every change up to and including this table revision has been attempted, or a newer one of the same row. */
  readonly revision: Revision;
  /** Whether `revision` is at least the one asked for. */
  readonly reached: boolean;
  /**
   * Rows that were refused and not acknowledged since, of those that may have changed up to the revision asked for: a
   * newer change of a row hides when it changed before.
   */
  readonly failing: readonly Failure<T>[];
}

/** When waiting ends without an answer. */
export interface WaitOptions {
  /** Answer with what is reached after this many milliseconds. Default: wait without end. */
  readonly timeoutMs?: number | undefined;
  /** Reject with the signal's reason once it is aborted. */
  readonly signal?: AbortSignal | undefined;
}

/** What the target is asked for: to take a row, to drop one, or to drop whatever is not in the table. */
export type OperationKind = 'update' | 'delete' | 'prune';

/** Totals since creation. A refreshed row counts as an update. */
export interface OperationMetrics {
  /** Rows that the target acknowledged; for `prune`, calls. */
  readonly done: number;
  /** Rows that failed, once for each attempt; for `prune`, calls. */
  readonly failed: number;
  /** Milliseconds from the begin of each call to its end, summed over calls, and of the longest call. */
  readonly totalMs: number;
  readonly longestMs: number;
}

/** Plain numbers, for any monitoring system: counters in `update`, `delete`, `prune` and `rounds`; else gauges. */
export interface ReconcilerMetrics {
  readonly update: OperationMetrics;
  readonly delete: OperationMetrics;
  readonly prune: OperationMetrics;
  readonly rounds: number;
  /** Table revisions not attempted yet: how long the queue is, at most. */
  readonly lag: number;
  /** Calls of operations that have not ended. */
  readonly running: number;
  /** Rows that `failing()` lists. */
  readonly failing: number;
}

/** What is reconciled with what, and how fast. */
export interface ReconcilerOptions<T> {
  /** In messages, reports and change streams. Not empty. */
  readonly name: string;
  readonly db: StateDB;
  readonly table: Table<T>;
  readonly operations: Operations<T>;
  /** Tables that `table` is made from. Nothing is pruned or refreshed before all are initialised. Default: `table`. */
  readonly inputs?: readonly AnyTable[];
  /** Milliseconds, from 1: the longest wait before the first retry; doubled with each further one. Default 50. */
  readonly minBackoffMs?: number;
  /** Milliseconds: no wait is longer. Default 30_000. */
  readonly maxBackoffMs?: number;
  /** Milliseconds between prunes; 0 (default) = only once, after initialisation. */
  readonly pruneIntervalMs?: number;
  /** Milliseconds between refreshes, each of which applies every row again; 0 (default) = never. */
  readonly refreshIntervalMs?: number;
  /** Rows in a round and in a batch, from 1. Default 1000. */
  readonly batchSize?: number;
  /**
   * At most this many rounds a second, so that changes that come in a burst share a round; after a rest or a late timer, up to
   * 10 ms' worth of rounds more. Default unlimited.
   */
  readonly roundsPerSecond?: number;
  /** At most this many rows are given to the target a second, in the long run. Default unlimited. */
  readonly operationsPerSecond?: number;
  /** Rows that may be given at once after a time of rest, from 1. Default: as many as `operationsPerSecond`. */
  readonly burst?: number;
  /** Operations on single rows that may run at once, from 1 (default). */
  readonly concurrency?: number;
  /** Milliseconds that one call of an operation may take; 0 (default) = without end. */
  readonly operationTimeoutMs?: number;
  /** Milliseconds that `stop()` lets operations run before it aborts them. Default 10_000. */
  readonly stopGraceMs?: number;
  /** Tables, made by `reportTables(db)`, to publish health and failures in. Reconcilers of different names may share them. */
  readonly report?: ReportTables;
  /**
   * Called after every failed attempt. `retries` is 0 for the first failure of a row's revision. `failingMs`: milliseconds since the target
   * refused the row, or an older revision of it, and has acknowledged none; 0 for the first failure.
   */
  readonly onError?: (row: T, error: Error, retries: number, failingMs: number) => void;
  /** Called after every failed prune of the loop, which is retried with backoff, as `onError` is. Default: a process warning. */
  readonly onPruneError?: (error: Error, retries: number, failingMs: number) => void;
  /** Called after every call of an operation: for histograms. `rows` were given, `failed` of them refused. */
  readonly onOperation?: (kind: OperationKind, ms: number, rows: number, failed: number) => void;
  /** Default: the machine's clock, with timers that do not keep the process alive. */
  readonly clock?: Clock;
  /** Jitter: a number in [0, 1). Default `Math.random`. */
  readonly random?: () => number;
}

/** Brings a target to what a table says, and keeps it there. */
export interface Reconciler<T> {
  readonly name: string;
  /** Starts the loop: rounds run as changes arrive. Throws `ReconcilerStoppedError` after `stop()`. */
  start(): void;
  /**
   * Begins nothing more, waits for the operations that run, and lets go of the table's changes. Operations still running
   * after `stopGraceMs` have their signal aborted; those that run on for as long again are given up with a
   * `StopTimeoutError`. Whoever waits gets `ReconcilerStoppedError`. Final: another reconciler may take the table over.
   */
  stop(): Promise<void>;
  /**
   * Runs one round now: every change committed before the call, then due retries; resolves when all have been attempted.
   * For callers that order several reconcilers themselves and do not `start()` them. Does not prune or refresh. When
   * stopped meanwhile, the answer tells how far it came. Throws `ReconcilerStoppedError` when stopped before.
   */
  reconcile(): Promise<Progress<T>>;
  /** Prunes now. Rejects with `NotInitialisedError`, with the operation's error, or with `ReconcilerStoppedError`. */
  prune(): Promise<void>;
  /**
   * Applies every acknowledged row again; resolves when all have been attempted, while changes go on between. Rejects
   * with `NotInitialisedError` or `ReconcilerStoppedError`.
   */
  refresh(): Promise<Progress<T>>;
  /**
   * Of the row with this primary key. Undefined when the table has no such row and every change has been dealt with;
   * pending when there is no such row and changes, perhaps its delete, are still to be looked at.
   */
  status(key: string): RowStatus | undefined;
  /** Resolves once every change up to `revision` has been attempted, with what is still failing among them. */
  waitUntil(revision: Revision, options?: WaitOptions | AbortSignal): Promise<Progress<T>>;
  failing(): readonly Failure<T>[];
  /**
   * What waits for its next attempt after a failure is due now: for who learns that the target works again. What is being attempted may
   * have met the target as it was: should it fail, it waits as after a first failure.
   */
  retry(): void;
  metrics(): ReconcilerMetrics;
}

/** One row for each reconciler. */
export interface HealthRow {
  readonly reconciler: string;
  readonly table: string;
  readonly state: 'running' | 'stopped';
  /** Nothing fails. */
  readonly ok: boolean;
  /** As in `Progress.revision`. */
  readonly attempted: Revision;
  /** Table revisions not attempted yet. */
  readonly lag: number;
  readonly failing: number;
}

/** One row for each row of a reconciled table that `failing()` lists; gone once the target has acknowledged the row. */
export interface FailureRow {
  readonly reconciler: string;
  readonly key: string;
  readonly revision: Revision;
  readonly deleted: boolean;
  readonly message: string;
  readonly attempt: number;
  readonly nextRetryAt: number;
}

/** The tables in which reconcilers report, and where they are. */
export interface ReportTables {
  readonly db: StateDB;
  readonly health: Table<HealthRow, never>;
  readonly failures: Table<FailureRow, 'reconciler'>;
}
