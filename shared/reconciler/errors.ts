/** Errors of the reconciler. Each names the cause, the value and the fix; match on `code` or on the class. */

export abstract class ReconcilerError extends Error {
  abstract readonly code: string;
  override get name(): string {
    return this.constructor.name;
  }
}

export class NotInitialisedError extends ReconcilerError {
  readonly code = 'RECONCILER_NOT_INITIALISED';
  constructor(reconciler: string, action: 'prune' | 'refresh', waits: ReadonlyMap<string, readonly string[]>) {
    const tables = [...waits].map(([table, pending]) => `"${table}" (${pending.join(', ') || 'its initialisers'})`);
    super(
      `reconciler "${reconciler}" will not ${action}: incomplete is table ${tables.join(', ')}; ` +
        `${action} once db.initialisedWatch() of each has fired`,
    );
  }
}

export class ReconcilerStoppedError extends ReconcilerError {
  readonly code = 'RECONCILER_STOPPED';
  constructor(reconciler: string, what: string) {
    super(`reconciler "${reconciler}" has been stopped: ${what}; create a new one and ask that`);
  }
}

export class StopTimeoutError extends ReconcilerError {
  readonly code = 'RECONCILER_STOP_TIMEOUT';
  constructor(reconciler: string, running: number, graceMs: number) {
    super(
      `reconciler "${reconciler}": ${running} operations run on ${graceMs} ms after their signal was aborted and are ` +
        'given up; let every operation end soon after its signal',
    );
  }
}

export class OperationTimeoutError extends ReconcilerError {
  readonly code = 'RECONCILER_OPERATION_TIMEOUT';
  constructor(reconciler: string, timeoutMs: number) {
    super(`reconciler "${reconciler}": the target did not answer within operationTimeoutMs, ${timeoutMs} ms`);
  }
}

export class LateFailureError extends ReconcilerError {
  readonly code = 'RECONCILER_LATE_FAILURE';
  constructor(reconciler: string) {
    super(
      `reconciler "${reconciler}": fail() was called after the batch had ended, so the row is recorded already; ` +
        'call it before the batch function returns, or return a promise that ends after the last call',
    );
  }
}

export class InvalidOptionError extends ReconcilerError {
  readonly code = 'RECONCILER_INVALID_OPTION';
  constructor(reconciler: string, option: string, value: unknown, wanted: string) {
    super(`reconciler "${reconciler}": ${option} is ${printed(value)}; give ${wanted}`);
  }
}

/**
 * To be thrown by a batch operation that went through its rows in order and stopped at one of them: the first `applied`
 * rows are done, the next one failed with `cause`, those after it were not tried.
 */
export class BatchStoppedError extends ReconcilerError {
  readonly code = 'RECONCILER_BATCH_STOPPED';
  readonly applied: number;
  constructor(applied: number, cause: unknown) {
    super(`the batch stopped after ${applied} rows: ${toError(cause).message}`, { cause });
    this.applied = applied;
  }
}

/** What an operation threw, as an Error. */
export function toError(thrown: unknown): Error {
  return thrown instanceof Error ? thrown : new Error(String(thrown), { cause: thrown });
}

function printed(value: unknown): string {
  if (typeof value === 'string') return JSON.stringify(value);
  return typeof value === 'object' && value !== null ? 'an object' : String(value);
}
