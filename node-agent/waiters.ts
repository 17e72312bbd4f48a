/** Callers that wait until a round has made something true. */
export class Waiters {
  /** Callbacks of callers that wait. */
  readonly #looks = new Set<() => void>();
  #closed = false;

  /** Calls `test` now and after each round until it answers; undefined when the signal or the core's end comes first. */
  async until<T>(test: () => T | undefined, signal?: AbortSignal): Promise<T | undefined> {
    const now = test();
    if (now !== undefined) return now;
    if (this.#closed) return undefined;
    return await new Promise<T | undefined>((resolve, reject) => {
      const leave = (): void => {
        this.#looks.delete(look);
        signal?.removeEventListener('abort', aborted);
      };
      const aborted = (): void => {
        leave();
        resolve(undefined);
      };
      const look = (): void => {
        if (this.#closed) {
          aborted();
          return;
        }
        try {
          const answer = test();
          if (answer === undefined) return;
          leave();
          resolve(answer);
        } catch (error) {
          leave();
          reject(error);
        }
      };
      this.#looks.add(look);
      signal?.addEventListener('abort', aborted);
      if (signal?.aborted) aborted();
    });
  }

  /** A round has ended. */
  look(): void {
    for (const look of [...this.#looks]) look();
  }

  /** No round will come any more. */
  close(): void {
    this.#closed = true;
    this.look();
  }
}
