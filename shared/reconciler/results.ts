/** What comes of attempts: into the book, the totals, and the caller's ears. */
import { backoffDelay } from './backoff.ts';
import type { Book, Item } from './book.ts';
import type { Settings } from './options.ts';
import type { OperationKind, OperationMetrics } from './types.ts';

type Totals = { -readonly [K in keyof OperationMetrics]: OperationMetrics[K] };

export class Results<T> {
  readonly totals: Readonly<Record<OperationKind, Totals>> = { update: zero(), delete: zero(), prune: zero() };
  readonly #settings: Settings<T>;
  readonly #book: Book<T>;

  constructor(settings: Settings<T>, book: Book<T>) {
    this.#settings = settings;
    this.#book = book;
  }

  /** A call has ended, or its time is over. */
  called(kind: OperationKind, ms: number, rows: number, failed: number): void {
    const totals = this.totals[kind];
    totals.done += rows - failed;
    totals.failed += failed;
    totals.totalMs += ms;
    if (ms > totals.longestMs) totals.longestMs = ms;
    const { onOperation } = this.#settings;
    if (onOperation !== undefined) guard(() => onOperation(kind, ms, rows, failed));
  }

  /** An attempt at the newest change of a row has failed. */
  failed(item: Item<T>, error: Error): void {
    const { clock, onError } = this.#settings;
    const now = clock.now();
    this.#book.failed(item, error, now, now + this.backoffMs(item.hastened ? 1 : item.attempt + 1));
    const { row, attempt, failingSince } = item;
    guard(() => onError(row, error, attempt - 1, now - failingSince));
  }

  /** Milliseconds to wait after the failed attempt number `attempt`, from 1. */
  backoffMs(attempt: number): number {
    const { minBackoffMs, maxBackoffMs, random } = this.#settings;
    return backoffDelay(attempt, { minMs: minBackoffMs, maxMs: maxBackoffMs, random });
  }
}

/** A callback that throws is a defect of its owner: it surfaces as an uncaught exception, and the work goes on. */
export function guard(callback: () => void): void {
  try {
    callback();
  } catch (error) {
    queueMicrotask(() => {
      throw error;
    });
  }
}

function zero(): Totals {
  return { done: 0, failed: 0, totalMs: 0, longestMs: 0 };
}
