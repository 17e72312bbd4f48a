/** A table's changes as an rxjs Observable, for fan-out and lifecycle. */
import { Observable } from 'rxjs';
import { InvalidLimitError } from './errors.ts';
import type { Change, StateDB, Table } from './types.ts';

const BATCH = 1000;

/** How `observe` follows a table. */
export interface ObserveOptions {
  /** Completes the observable. */
  readonly signal?: AbortSignal;
  /** Names the stream in `tables()`. Default `observe`. */
  readonly name?: string;
  /** At most so many changes in one batch, at least 1. Default 1000. */
  readonly batch?: number;
  /** Asked after each batch: the next one is taken when the promise resolves, at once without one. A rejection goes to `error`. */
  readonly ready?: () => Promise<unknown> | undefined;
}

/**
 * Batches of changes: first the whole table, then what changes. Each subscriber has its own stream and gets its batches
 * from the event loop, never from within a commit; between two batches the event loop runs.
 *
 * Nothing is buffered beyond the one batch being handed over: what a subscriber has not taken yet waits in the table,
 * coalesced by key. Unsubscribing, completion and errors close the stream; what the stream or the database throws goes
 * to `error`. Throws `InvalidLimitError` for a `batch` below 1.
 */
export function observe<T>(
  db: StateDB,
  table: Table<T>,
  options: ObserveOptions = {},
): Observable<readonly Change<T>[]> {
  const { signal, name = 'observe', batch = BATCH, ready } = options;
  if (!(batch >= 1)) throw new InvalidLimitError(batch);
  return new Observable((subscriber) => {
    // Thrown errors go to `error`, here by rxjs itself.
    const stream = db.changes(table, { name });
    let scheduled: NodeJS.Immediate | undefined;
    let stopWatching = (): void => {};
    const complete = (): void => subscriber.complete();
    const schedule = (): void => {
      scheduled = setImmediate(pull);
    };
    const watch = (): void => {
      if (!subscriber.closed) stopWatching = stream.watch().onFire(schedule);
    };
    const pull = (): void => {
      scheduled = undefined;
      try {
        const changes = stream.next(batch);
        if (changes.length > 0) subscriber.next(changes);
        const busy = changes.length > 0 && !subscriber.closed ? ready?.() : undefined;
        if (busy === undefined) watch();
        else busy.then(watch, (error: unknown) => subscriber.error(error));
      } catch (error) {
        subscriber.error(error);
      }
    };
    subscriber.add(() => {
      if (scheduled !== undefined) clearImmediate(scheduled);
      stopWatching();
      signal?.removeEventListener('abort', complete);
      stream[Symbol.dispose]();
    });
    if (signal?.aborted) return complete();
    signal?.addEventListener('abort', complete, { once: true });
    schedule();
  });
}
