/** Operations on many rows in one call: one call at a time, never beside other operations. */
import type { Change, Revision } from '@weir/statedb';
import { Item, type Work } from './book.ts';
import { isPromise } from './calls.ts';
import { BatchStoppedError, LateFailureError, toError } from './errors.ts';
import type { Parts } from './parts.ts';
import type { BatchItem } from './types.ts';

class BatchCall {
  readonly reconciler: string;
  open = true;
  /** Rows that were failed one by one. */
  failures = 0;
  /** Rows that are in the book. */
  known = 0;

  constructor(reconciler: string) {
    this.reconciler = reconciler;
  }
}

class BatchRow<T> implements BatchItem<T> {
  readonly row: T;
  readonly revision: Revision;
  readonly change: Change<T>;
  error: Error | undefined = undefined;
  readonly #call: BatchCall;

  constructor(change: Change<T>, call: BatchCall) {
    this.row = change.row;
    this.revision = change.revision;
    this.change = change;
    this.#call = call;
  }

  fail(error: unknown): void {
    if (!this.#call.open) throw new LateFailureError(this.#call.reconciler);
    if (this.error === undefined) this.#call.failures++;
    this.error = toError(error);
  }
}

export class Batches<T> {
  readonly #parts: Parts<T>;

  constructor(parts: Parts<T>) {
    this.#parts = parts;
  }

  /** Attempts the changes, all deletes or all updates, in their order. False when the gate was closed before the last. */
  async run(changes: readonly Change<T>[], work: Work): Promise<boolean> {
    const { gate } = this.#parts;
    let from = 0;
    while (from < changes.length) {
      const most = this.#most(changes, from);
      const size = gate.enter(most, 1) || (await gate.wait(most, 1));
      if (size === 0) return false;
      const all = size === changes.length;
      from += await this.#call(all ? changes : changes.slice(from, from + size), work);
    }
    return true;
  }

  /** How many rows from here on may go into one batch: fewer where a row may be what made batches fail as a whole. */
  #most(changes: readonly Change<T>[], from: number): number {
    const { batchSize } = this.#parts.settings;
    let most = Math.min(batchSize, changes.length - from);
    if (this.#parts.book.failing === 0) return most;
    for (let i = 0; i < most; i++) {
      const change = changes[from + i];
      if (change instanceof Item && change.suspected > 0) {
        most = Math.min(most, Math.max(1, i, batchSize >> Math.min(2 * change.suspected, 31)));
      }
    }
    return most;
  }

  /** Makes one call; returns how many rows it has dealt with, at least one. */
  async #call(changes: readonly Change<T>[], work: Work): Promise<number> {
    const { calls, gate, settings, book } = this.#parts;
    const { operations, name } = settings;
    const call = new BatchCall(name);
    const rows = changes.map((change) => new BatchRow(change, call));
    if (book.failing > 0) for (const change of changes) if (change instanceof Item) call.known++;
    const began = performance.now();
    let error: Error | undefined;
    try {
      const returned: unknown = changes[0]?.deleted
        ? operations.deleteBatch?.(rows, calls.signal)
        : operations.updateBatch?.(rows, calls.signal);
      if (isPromise(returned)) error = await this.#follow(returned, rows, call, began);
    } catch (thrown) {
      error = toError(thrown);
    }
    call.open = false;
    const dealtWith = this.#settle(rows, call, error, performance.now() - began, work);
    await gate.yieldNow();
    return dealtWith;
  }

  /** Resolves when the call has ended, or its time is over, with its error. What comes later is noted when it comes. */
  #follow(
    promise: PromiseLike<unknown>,
    rows: readonly BatchRow<T>[],
    call: BatchCall,
    began: number,
  ): Promise<Error | undefined> {
    return new Promise((resolve) => {
      let late = false;
      const timedOut = (error: Error): void => {
        late = true;
        call.open = false;
        resolve(error);
      };
      const ended = (error: Error | undefined): void => {
        if (!late) resolve(error);
        else if (error === undefined) this.#late(rows, performance.now() - began);
      };
      this.#parts.calls.follow(promise, { timedOut, ended }, true);
    });
  }

  #settle(rows: readonly BatchRow<T>[], call: BatchCall, error: Error | undefined, ms: number, work: Work): number {
    const { book, results, settings } = this.#parts;
    const stoppedAt = error instanceof BatchStoppedError ? error.applied : -1;
    const stopped = Number.isInteger(stoppedAt) && stoppedAt >= 0 && stoppedAt < rows.length;
    const dealtWith = stopped ? stoppedAt + 1 : rows.length;
    let failed = 0;
    if (error !== undefined || call.failures > 0 || call.known > 0) {
      for (let i = 0; i < dealtWith; i++) {
        const row = rows[i] as BatchRow<T>;
        const item = row.change instanceof Item ? (row.change as Item<T>) : undefined;
        const blamed = row.error !== undefined || stopped || rows.length === 1;
        const own = row.error ?? (stopped ? (i === stoppedAt ? toError(error?.cause) : undefined) : error);
        if (own === undefined) {
          if (item !== undefined) book.succeeded(item);
          continue;
        }
        failed++;
        const failing = item ?? book.add(settings.table.spec.key(row.row), row.change, work.since);
        if (!blamed) failing.suspected++;
        results.failed(failing, own);
      }
    }
    results.called(rows[0]?.change.deleted ? 'delete' : 'update', ms, dealtWith, failed);
    return dealtWith;
  }

  /** The call has succeeded after its time: what it acknowledged is done after all, if nothing newer has come. */
  #late(rows: readonly BatchRow<T>[], ms: number): void {
    const { book, results, settings } = this.#parts;
    const taken = rows.filter(({ error }) => error === undefined);
    results.called(rows[0]?.change.deleted ? 'delete' : 'update', ms, taken.length, 0);
    for (const { row, revision } of taken) {
      const item = book.items.get(settings.table.spec.key(row));
      if (item?.revision === revision && item.attempt > 0) book.succeeded(item);
    }
  }
}
