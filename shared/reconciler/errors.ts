/** Errors of the reconciler. Each names the cause, the value and the fix; match on `code` or on the class. */

/** What every error of this package extends. `code` is `ERR_RECONCILER_…`. */
export abstract class ReconcilerError extends Error {
  abstract readonly code: string;
  override get name(): string {
    return this.constructor.name;
  }
}

/**
 * A prune or refresh was asked for while a table in `inputs` is not initialised.
 * @fix Wait for `db.initialisedWatch()` of each table that the message names.
 */
export class NotInitialisedError extends ReconcilerError {
  readonly code = 'ERR_RECONCILER_NOT_INITIALISED';
  constructor(reconciler: string, action: 'prune' | 'refresh', waits: ReadonlyMap<string, readonly string[]>) {
    const tables = [...waits].map(([table, pending]) => `"${table}" (${pending.join(', ') || 'its initialisers'})`);
    super(
      `reconciler "${reconciler}" will not ${action}: incomplete is table ${tables.join(', ')}; ` +
        `${action} once db.initialisedWatch() of each has fired`,
    );
  }
}

/**
 * Something was asked of a reconciler after `stop()`, or was still waiting then.
 * @fix Create a new reconciler.
 */
export class ReconcilerStoppedError extends ReconcilerError {
  readonly code = 'ERR_RECONCILER_STOPPED';
  constructor(reconciler: string, what: string) {
    super(`reconciler "${reconciler}" has been stopped: ${what}; create a new one and ask that`);
  }
}

/**
 * Operations ran on after `stop()` had aborted their signal, and were given up.
 * @fix Have each operation end soon after its `AbortSignal`, or raise `stopGraceMs`.
 */
export class StopTimeoutError extends ReconcilerError {
  readonly code = 'ERR_RECONCILER_STOP_TIMEOUT';
  constructor(reconciler: string, running: number, graceMs: number) {
    super(
      `reconciler "${reconciler}": ${running} operations run on ${graceMs} ms after their signal was aborted and are ` +
        'given up; let every operation end soon after its signal',
    );
  }
}

/**
 * The target did not answer within `operationTimeoutMs`. The row is retried.
 * @fix Find out why the target is slow, or raise `operationTimeoutMs`.
 */
export class OperationTimeoutError extends ReconcilerError {
  readonly code = 'ERR_RECONCILER_OPERATION_TIMEOUT';
  constructor(reconciler: string, timeoutMs: number) {
    super(`reconciler "${reconciler}": the target did not answer within operationTimeoutMs, ${timeoutMs} ms`);
  }
}

/**
 * `fail()` was called after the batch had ended, so that its rows were recorded as done.
 * @fix Call `fail()` before the batch function returns, or return a promise that settles after the last call.
 */
export class LateFailureError extends ReconcilerError {
  readonly code = 'ERR_RECONCILER_LATE_FAILURE';
  constructor(reconciler: string) {
    super(
      `reconciler "${reconciler}": fail() was called after the batch had ended, so the row is recorded already; ` +
        'call it before the batch function returns, or return a promise that ends after the last call',
    );
  }
}

/**
 * An option or argument is not what it must be.
 * @fix Give what the message asks for.
 */
export class InvalidOptionError extends ReconcilerError {
  readonly code = 'ERR_RECONCILER_INVALID_OPTION';
  constructor(reconciler: string, option: string, value: unknown, wanted: string) {
    super(`reconciler "${reconciler}": ${option} is ${printed(value)}; give ${wanted}`);
  }
}

/**
 * A batch operation went through its rows in order and stopped at one: the first `applied` rows are done, the next one failed with
 * `cause`, the rest was not tried. Thrown by the operation.
 * @fix See `cause`; the reconciler retries the row that failed, and goes on with the rows after it.
 */
export class BatchStoppedError extends ReconcilerError {
  readonly code = 'ERR_RECONCILER_BATCH_STOPPED';
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
