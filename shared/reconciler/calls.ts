/**
 * Calls of operations that have not ended: each with its own signal and its own time.
 *
 * An operation that returns without a promise costs nothing here: its signal is passed on to the next.
 */
import type { Alarm, Clock } from './clock.ts';
import { OperationTimeoutError, toError } from './errors.ts';

export interface CallsOptions {
  readonly name: string;
  readonly clock: Clock;
  readonly alarm: Alarm;
  /** Milliseconds; 0 = without end. */
  readonly operationTimeoutMs: number;
}

/** How a call goes on. `timedOut` may come first, once; `ended` comes when the operation has really ended. */
export interface CallOutcome {
  timedOut(error: Error): void;
  ended(error: Error | undefined): void;
}

export function isPromise(value: unknown): value is PromiseLike<unknown> {
  return typeof (value as PromiseLike<unknown> | undefined)?.then === 'function';
}

export class Calls {
  readonly #options: CallsOptions;
  readonly #running = new Set<AbortController>();
  #alone = 0;
  #next = new AbortController();

  constructor(options: CallsOptions) {
    this.#options = options;
  }

  get running(): number {
    return this.#running.size;
  }

  /** Places taken: all there are while an operation runs that must be alone. */
  get taken(): number {
    return this.#alone > 0 ? Number.POSITIVE_INFINITY : this.#running.size;
  }

  /** For the operation that is called next. */
  get signal(): AbortSignal {
    return this.#next.signal;
  }

  /** The operation called last has returned `promise`. Nothing is to run beside it when it is to be `alone`. */
  follow(promise: PromiseLike<unknown>, outcome: CallOutcome, alone = false): void {
    const { name, clock, alarm, operationTimeoutMs } = this.#options;
    const controller = this.#next;
    this.#next = new AbortController();
    this.#running.add(controller);
    if (alone) this.#alone++;
    const forget =
      operationTimeoutMs === 0
        ? undefined
        : clock.after(operationTimeoutMs, () => {
            const error = new OperationTimeoutError(name, operationTimeoutMs);
            outcome.timedOut(error);
            alarm.ring();
            controller.abort(error);
          });
    const end = (error: Error | undefined): void => {
      forget?.();
      this.#running.delete(controller);
      if (alone) this.#alone--;
      outcome.ended(error);
      alarm.ring();
    };
    promise.then(
      () => end(undefined),
      (error: unknown) => end(toError(error)),
    );
  }

  /** Aborts the signal of every call that runs. */
  abort(reason: Error): void {
    for (const controller of [...this.#running]) controller.abort(reason);
  }
}
