/** Counts failed requests to the API server, which are retried, and logs each kind of them once a minute. */
import { KubeError, Outage } from '@weir/kube';
import { messageOf } from '@weir/process/errors';
import type { Logger } from 'pino';
import { OperatorError } from './errors.ts';
import type { Totals } from './metrics.ts';

export interface Failure {
  /** Which counts it. */
  readonly component: string;
  readonly error: unknown;
  readonly message: string;
  readonly fields?: object;
  /** What tells failures apart. Default: the message. */
  readonly kind?: string;
  /** Nobody need know of it yet: it is logged at debug. */
  readonly early?: true;
}

export interface FailuresOptions {
  readonly totals: Pick<Totals, 'error'>;
  readonly log: Logger;
  /** Whether an error needs no line of the log. */
  readonly expected: (error: unknown) => boolean;
}

export class Failures {
  readonly #options: FailuresOptions;
  readonly #outage = new Outage();

  constructor(options: FailuresOptions) {
    this.#options = options;
  }

  /** The API server has answered. */
  answered(): void {
    this.#outage.answered();
  }

  failed({ component, error, message, fields = {}, kind = message, early }: Failure): void {
    const { totals, log, expected } = this.#options;
    totals.error(component);
    if (expected(error)) return;
    if (early) {
      log.debug({ ...fields, error: messageOf(error) }, message);
      return;
    }
    const { loud, ...fix } = this.#outage.failed(kind, error);
    // The stack of what the API server says is our client's, and the same every time.
    const repeated =
      error instanceof KubeError || error instanceof OperatorError ? { error: error.message } : { err: error };
    log[loud ? 'warn' : 'debug']({ ...fields, ...repeated, ...fix }, message);
  }
}
