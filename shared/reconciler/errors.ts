/** Errors of the reconciler. Each names the cause, the value and the fix; match on `code` or on the class. */

export abstract class ReconcilerError extends Error {
  abstract readonly code: string;
  override get name(): string {
    return this.constructor.name;
  }
}

export class NotInitialisedError extends ReconcilerError {
  readonly code = 'RECONCILER_NOT_INITIALISED';
  constructor(reconciler: string, table: string, pending: readonly string[]) {
    super(
      `reconciler "${reconciler}" will not prune: table "${table}" is not complete, it waits for ` +
        `${pending.join(', ') || 'its initialisers'}; prune once db.initialisedWatch(table) has fired`,
    );
  }
}

export class ReconcilerStoppedError extends ReconcilerError {
  readonly code = 'RECONCILER_STOPPED';
  constructor(reconciler: string, revision: number) {
    super(
      `reconciler "${reconciler}" was stopped before it attempted revision ${revision}; start it again and wait anew`,
    );
  }
}

export class LateFailureError extends ReconcilerError {
  readonly code = 'RECONCILER_LATE_FAILURE';
  constructor(reconciler: string) {
    super(
      `reconciler "${reconciler}": fail() was called after the batch had ended, so the row is recorded as done; ` +
        'call it before the batch function returns, or return a promise that ends after the last call',
    );
  }
}

export class InvalidOptionError extends ReconcilerError {
  readonly code = 'RECONCILER_INVALID_OPTION';
  constructor(reconciler: string, option: string, value: unknown, wanted: string) {
    super(`reconciler "${reconciler}": ${option} is ${String(value)}; give ${wanted}`);
  }
}

/** What an operation threw, as an Error. */
export function toError(thrown: unknown): Error {
  return thrown instanceof Error ? thrown : new Error(String(thrown), { cause: thrown });
}
