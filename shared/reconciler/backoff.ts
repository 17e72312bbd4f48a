/** When what failed is tried again: exponential backoff with full jitter. Imports nothing, so that whoever retries may use it. */

/** How long to wait after a failure, and after each further one. */
export interface BackoffOptions {
  /** Milliseconds: the longest delay after the first failure. */
  readonly minMs: number;
  /** Milliseconds: the longest delay after any. */
  readonly maxMs: number;
  /** 0 <= random() < 1. Default `Math.random`. */
  readonly random?: () => number;
}

/** Milliseconds to wait at most after the failed attempt number `attempt` (from 1): `minMs` doubled with each, at most `maxMs`. */
export function longestDelayMs(attempt: number, { minMs, maxMs }: Pick<BackoffOptions, 'minMs' | 'maxMs'>): number {
  return Math.min(maxMs, minMs * 2 ** Math.min(attempt - 1, 60));
}

/**
 * Milliseconds to wait after the failed attempt number `attempt` (from 1): any part of the longest delay with equal chance (full jitter), and
 * more than nothing, so that those who failed together do not come back together.
 */
export function backoffDelay(attempt: number, options: BackoffOptions): number {
  const { random = Math.random } = options;
  return longestDelayMs(attempt, options) * (1 - random());
}

/** The delays of one thing that is tried again and again. */
export class Backoff {
  readonly #options: BackoffOptions;
  #attempt = 0;

  constructor(options: BackoffOptions) {
    this.#options = options;
  }

  /** Whole milliseconds to wait after a failure, at least `atLeastMs` (a server's Retry-After). */
  next(atLeastMs = 0): number {
    this.#attempt += 1;
    return Math.max(atLeastMs, Math.ceil(backoffDelay(this.#attempt, this.#options)));
  }

  /** An attempt has succeeded. */
  reset(): void {
    this.#attempt = 0;
  }
}
