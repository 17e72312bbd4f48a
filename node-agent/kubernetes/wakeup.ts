/** A latch: `wake` before `wait` is not lost, many wakes are one. */
export class Wakeup {
  #pending = false;
  #resolve: (() => void) | undefined;

  wake(): void {
    this.#pending = true;
    this.#resolve?.();
  }

  /** Resolves when woken or aborted, true, or after `timeoutMs`, false. One waiter at a time. */
  async wait(signal: AbortSignal, timeoutMs?: number): Promise<boolean> {
    if (!this.#pending && !signal.aborted) {
      const { promise, resolve } = Promise.withResolvers<void>();
      const aborted = (): void => resolve();
      this.#resolve = resolve;
      signal.addEventListener('abort', aborted, { once: true });
      const timer = timeoutMs === undefined ? undefined : setTimeout(resolve, timeoutMs);
      await promise;
      clearTimeout(timer);
      signal.removeEventListener('abort', aborted);
      this.#resolve = undefined;
    }
    const woken = this.#pending || signal.aborted;
    this.#pending = false;
    return woken;
  }
}
