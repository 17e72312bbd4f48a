/** A table's changes as an rxjs Observable, for fan-out and lifecycle. */
import { Observable } from 'rxjs';
import type { Change, StateDB, Table } from './types.ts';

const BATCH = 1000;

export interface ObserveOptions {
  /** Completes the observable. */
  readonly signal?: AbortSignal;
}

/**
 * Batches of at most 1000 changes: first the whole table, then what changes. Each subscriber has its own stream and gets
 * its batches from the event loop, never from within a commit; between two batches the event loop runs.
 */
export function observe<T>(
  db: StateDB,
  table: Table<T>,
  options: ObserveOptions = {},
): Observable<readonly Change<T>[]> {
  return new Observable((subscriber) => {
    const stream = db.changes(table);
    let scheduled: NodeJS.Immediate | undefined;
    let stopWatching = (): void => {};
    const complete = (): void => subscriber.complete();
    const schedule = (): void => {
      scheduled = setImmediate(pull);
    };
    const pull = (): void => {
      scheduled = undefined;
      const batch = stream.next(BATCH);
      if (batch.length > 0) subscriber.next(batch);
      if (subscriber.closed) return;
      stopWatching = stream.watch().onFire(schedule);
    };
    subscriber.add(() => {
      if (scheduled !== undefined) clearImmediate(scheduled);
      stopWatching();
      options.signal?.removeEventListener('abort', complete);
      stream[Symbol.dispose]();
    });
    if (options.signal?.aborted) return complete();
    options.signal?.addEventListener('abort', complete, { once: true });
    schedule();
  });
}
