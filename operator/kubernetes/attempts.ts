/** Who waits until a row that another writer has to write has been attempted. */
import { type Clock, type Reconciler, systemClock } from '@weir/reconciler';

export class Attempts {
  readonly #reconciler: Pick<Reconciler<unknown>, 'status'>;
  readonly #clock: Clock;
  /** By the row's key: calls back whoever waits. */
  readonly #waiting = new Map<string, Set<() => void>>();
  #closed: Error | undefined;

  /** `clock`: the reconciler's. */
  constructor(reconciler: Pick<Reconciler<unknown>, 'status'>, clock: Clock = systemClock) {
    this.#reconciler = reconciler;
    this.#clock = clock;
  }

  /** Whether the row is to be attempted now, for the first time or again, or is being attempted. */
  isPending(key: string): boolean {
    const status = this.#reconciler.status(key);
    return status?.kind === 'pending' || (status?.kind === 'error' && status.nextRetryAt <= this.#clock.now());
  }

  /** Waits until an attempt at this row has ended, which must be pending. Rejects with the reason when that is closed before. */
  next(key: string): Promise<void> {
    return new Promise((resolve, reject) => {
      const end = (): void => {
        if (this.#closed === undefined) resolve();
        else reject(this.#closed);
      };
      if (this.#closed !== undefined) end();
      else this.#waiting.set(key, (this.#waiting.get(key) ?? new Set()).add(end));
    });
  }

  /** An attempt at the row ends in this iteration of the event loop. */
  ended(key: string): void {
    // In the next one the reconciler knows of it.
    if (this.#waiting.has(key)) setImmediate(() => this.#tell(key));
  }

  close(why: Error): void {
    this.#closed = why;
    for (const key of [...this.#waiting.keys()]) this.#tell(key);
  }

  #tell(key: string): void {
    const waiting = this.#waiting.get(key) ?? [];
    this.#waiting.delete(key);
    for (const end of waiting) end();
  }
}
