export interface DelayOptions {
  /** Whether the process lives on for it. Default true. */
  readonly ref?: boolean;
}

/** Waits `ms` milliseconds; returns early, without an error, when `signal` aborts. */
export function delay(ms: number, signal?: AbortSignal, options: DelayOptions = {}): Promise<void> {
  return new Promise((resolve) => {
    if (signal?.aborted === true) {
      resolve();
      return;
    }
    const done = (): void => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    if (options.ref === false) timer.unref();
    signal?.addEventListener('abort', done, { once: true });
  });
}
