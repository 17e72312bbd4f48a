import type { TokenBucket } from './bucket.ts';
import type { Calls } from './calls.ts';
import type { Alarm } from './clock.ts';

const SLICE_MS = 5;

/** What the next operation waits for: a free place, a token, and an iteration of the event loop. */
export class Gate {
  /** Nothing is let in any more. */
  closed = false;
  readonly #alarm: Alarm;
  readonly #calls: Calls;
  readonly #bucket: TokenBucket;
  #sliceBegan = performance.now();
  /** Milliseconds on `performance.now()`: when the last operation was let in, or ended without a promise. */
  at = this.#sliceBegan;

  constructor(alarm: Alarm, calls: Calls, bucket: TokenBucket) {
    this.#alarm = alarm;
    this.#calls = calls;
    this.#bucket = bucket;
  }

  /** Begins a slice of work: the event loop has just run. */
  begin(): void {
    this.at = performance.now();
    this.#sliceBegan = this.at;
  }

  /** Lets up to `wanted` rows in, if that is possible without waiting; returns how many, or 0. */
  enter(wanted: number, concurrency: number): number {
    if (this.closed || this.#calls.taken >= concurrency || this.at - this.#sliceBegan >= SLICE_MS) return 0;
    return this.#bucket.take(wanted);
  }

  /** Waits until up to `wanted` rows may go in; returns how many, or 0 when the gate has been closed. */
  async wait(wanted: number, concurrency: number): Promise<number> {
    for (;;) {
      await this.yieldNow();
      while (!this.closed && this.#calls.taken >= concurrency) await this.#alarm.sleep(Number.POSITIVE_INFINITY);
      if (this.closed) return 0;
      const taken = this.#bucket.take(wanted);
      this.at = performance.now();
      if (taken > 0) return taken;
      await this.#alarm.sleep(this.#bucket.delayMs());
    }
  }

  /** Lets the event loop run if the present slice is over. */
  async yieldNow(): Promise<void> {
    this.at = performance.now();
    if (this.at - this.#sliceBegan < SLICE_MS) return;
    await new Promise<void>((resolve) => setImmediate(resolve));
    this.begin();
  }

  /** Waits until `condition` holds, looked at after every ring of the alarm; false when the gate was closed first. */
  async until(condition: () => boolean): Promise<boolean> {
    while (!condition()) {
      if (this.closed) return false;
      await this.#alarm.sleep(Number.POSITIVE_INFINITY);
    }
    return true;
  }
}
