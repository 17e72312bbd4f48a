import type { Clock } from './clock.ts';

/** A token bucket: `burst` tokens when full, filled with `rate` tokens a second. Full at first. */
export class TokenBucket {
  readonly #rate: number;
  readonly #burst: number;
  readonly #clock: Clock;
  #tokens: number;
  #filledAt: number;

  constructor(rate: number, burst: number, clock: Clock) {
    this.#rate = rate;
    this.#burst = burst;
    this.#clock = clock;
    this.#tokens = burst;
    this.#filledAt = clock.now();
  }

  /** Takes as many whole tokens as there are, at most `wanted`; returns how many. */
  take(wanted: number): number {
    if (this.#rate === Number.POSITIVE_INFINITY) return wanted;
    this.#fill();
    const taken = Math.min(wanted, Math.floor(this.#tokens));
    this.#tokens -= taken;
    return taken;
  }

  /** Milliseconds until there is a whole token. */
  delayMs(): number {
    this.#fill();
    return Math.max(0, Math.ceil(((1 - this.#tokens) * 1000) / this.#rate));
  }

  #fill(): void {
    const now = this.#clock.now();
    this.#tokens = Math.min(this.#burst, this.#tokens + ((now - this.#filledAt) * this.#rate) / 1000);
    this.#filledAt = now;
  }
}
