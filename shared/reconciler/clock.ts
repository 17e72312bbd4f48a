/** Time as the reconciler sees it; tests give their own. */
export interface Clock {
  /** Milliseconds since some fixed instant; never goes back. */
  now(): number;
  /** Runs `action` once after `ms` milliseconds. Returns a function that takes it back. */
  after(ms: number, action: () => void): () => void;
}

const LONGEST_TIMER_MS = 2 ** 31 - 1;

/** The machine's clock, in milliseconds since 1970 as of the start of the process. Its timers let the process end. */
export const systemClock: Clock = {
  now: () => performance.timeOrigin + performance.now(),
  after(ms, action) {
    const timer = setTimeout(action, Math.min(Math.max(ms, 0), LONGEST_TIMER_MS));
    timer.unref();
    return () => clearTimeout(timer);
  },
};

/** What can wake a sleeper: a StateDB watch, for instance. */
export interface Wakes {
  onFire(callback: () => void): () => void;
}

/** Sleeping until a time, an event, or a ring, which wakes everybody: whoever wakes looks for himself what is the case. */
export class Alarm {
  readonly #clock: Clock;
  readonly #sleepers = new Set<() => void>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  ring(): void {
    if (this.#sleepers.size > 0) for (const wake of [...this.#sleepers]) wake();
  }

  /** Sleeps for at most `ms` milliseconds; may be infinite. */
  async sleep(ms: number, wakers: readonly Wakes[] = []): Promise<void> {
    if (ms <= 0) return;
    const undo: (() => void)[] = [];
    await new Promise<void>((resolve) => {
      this.#sleepers.add(resolve);
      undo.push(() => this.#sleepers.delete(resolve));
      for (const waker of wakers) undo.push(waker.onFire(resolve));
      if (Number.isFinite(ms)) undo.push(this.#clock.after(ms, resolve));
    });
    for (const action of undo) action();
  }
}
