/** A latch: `wake` before `wait` is not lost, many wakes are one. */
export class Wakeup {
  #pending = false;
  #resolve: (() => void) | undefined;

  wake(): void {
    this.#pending = true;
    this.#resolve?.();
  }

  /** Resolves when woken or aborted. One waiter at a time. */
  async wait(signal: AbortSignal): Promise<void> {
    if (!this.#pending && !signal.aborted) {
      const { promise, resolve } = Promise.withResolvers<void>();
      const aborted = (): void => resolve();
      this.#resolve = resolve;
      signal.addEventListener('abort', aborted, { once: true });
      await promise;
      signal.removeEventListener('abort', aborted);
      this.#resolve = undefined;
    }
    this.#pending = false;
  }
}
