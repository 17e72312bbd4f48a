/** Time as the reconciler sees it; tests give their own. */
export interface Clock {
  /** Milliseconds since some fixed instant; never goes back. */
  now(): number;
  /** Runs `action` once after `ms` milliseconds. Returns a function that takes it back. */
  after(ms: number, action: () => void): () => void;
}

const LONGEST_TIMER_MS = 2 ** 31 - 1;

/** The machine's clock. Its timers do not keep the process alive. */
export const systemClock: Clock = {
  now: () => performance.now(),
  after(ms, action) {
    const timer = setTimeout(action, Math.min(Math.max(ms, 0), LONGEST_TIMER_MS));
    timer.unref();
    return () => clearTimeout(timer);
  },
};

const SLICE_MS = 5;

/** Gives the event loop its turn when the present slice of work has taken 5 ms. */
export class Slice {
  #began = performance.now();

  /** Undefined while the slice lasts; otherwise a promise to await. */
  pause(): Promise<void> | undefined {
    if (performance.now() - this.#began < SLICE_MS) return undefined;
    return new Promise((resolve) => {
      setImmediate(() => {
        this.#began = performance.now();
        resolve();
      });
    });
  }
}
