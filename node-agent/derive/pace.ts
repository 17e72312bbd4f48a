import type { Pieces } from '@weir/policy';

/** Longest stretch of work without a break, in milliseconds, except for single pieces that take longer by themselves. */
const STRETCH_MS = 3;

/** Says when a long piece of work should let the rest of the process run. */
export class Pace {
  readonly #now: () => number;
  readonly #yieldNow: () => Promise<void>;
  #since: number;

  /** `now`: milliseconds, any clock that only grows. */
  constructor(now: () => number, yieldNow: () => Promise<void>) {
    this.#now = now;
    this.#yieldNow = yieldNow;
    this.#since = now();
  }

  /** Work begins now. */
  restart(): void {
    this.#since = this.#now();
  }

  /** Whether a break is due: `if (pace.due()) await pace.yieldNow()` costs no promise while none is. */
  due(): boolean {
    return this.#now() - this.#since >= STRETCH_MS;
  }

  async yieldNow(): Promise<void> {
    await this.#yieldNow();
    this.restart();
  }

  /** Does the work, with breaks between its pieces where they are due. */
  async run<T>(pieces: Pieces<T>): Promise<T> {
    for (;;) {
      const { done, value } = pieces.next();
      if (done === true) return value;
      if (this.due()) await this.yieldNow();
    }
  }
}
