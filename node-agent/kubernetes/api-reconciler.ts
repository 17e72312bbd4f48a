import { createReconciler, type Reconciler, type ReconcilerOptions } from '@weir/reconciler';
import { longestDelayMs } from '@weir/reconciler/backoff';
import type { Connection } from './connection.ts';

const RETRY = { minMs: 200, maxMs: 5_000 };
/** Twice this is more than the client lets a request take: stopping waits for the one under way. */
const STOP_GRACE_MS = 20_000;

export interface ApiReconcilerOptions<T> extends ReconcilerOptions<T> {
  /** What it is to the connection. */
  readonly what: string;
  readonly connection: Connection;
  /** To be aborted before it is stopped: what fails from then on says nothing of the API server. */
  readonly ending: AbortSignal;
}

/** A reconciler of a table into the API that tells the connection whether the API server takes it. */
export function apiReconciler<T>(options: ApiReconcilerOptions<T>): Reconciler<T> {
  const { what, connection, ending, ...others } = options;
  const ended = (): void => {
    if (reconciler.failing().length === 0) connection.succeeded(what);
  };
  const reconciler = createReconciler<T>({
    ...others,
    minBackoffMs: RETRY.minMs,
    maxBackoffMs: RETRY.maxMs,
    stopGraceMs: STOP_GRACE_MS,
    onError: (_, error, retries) => {
      if (ending.aborted) return;
      connection.failed(what, error, longestDelayMs(retries + 1, RETRY));
    },
    // A row that this call has mended counts as failing until the callback has returned.
    onOperation: () => queueMicrotask(ended),
  });
  return reconciler;
}
