/** Exponential backoff with full jitter. */

export interface BackoffOptions {
  /** Milliseconds. */
  readonly minMs: number;
  /** Milliseconds. */
  readonly maxMs: number;
  /** 0 <= random() < 1. */
  readonly random?: () => number;
}

/**
 * Ranges that double from `minMs` to `maxMs`; each delay is any part of its range (full jitter), so that many clients that
 * failed together do not return together.
 */
export class Backoff {
  readonly #options: BackoffOptions;
  #attempt = 0;

  constructor(options: BackoffOptions) {
    this.#options = options;
  }

  /** The next delay in milliseconds; at least `atLeastMs` (a server's Retry-After). */
  next(atLeastMs = 0): number {
    const random = this.#options.random ?? Math.random;
    const ceiling = Math.min(this.#options.maxMs, this.#options.minMs * 2 ** Math.min(this.#attempt, 30));
    this.#attempt += 1;
    return Math.max(atLeastMs, Math.round(random() * ceiling));
  }

  reset(): void {
    this.#attempt = 0;
  }
}
