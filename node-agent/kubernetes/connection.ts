import type { Logger } from '../core.ts';

/** Silence after the announced retry that counts as success, in milliseconds. */
const GRACE_MS = 10_000;

/** Whether the API server answers, from the failures that are reported; logs once when it stops, once when it answers again. */
export class Connection {
  readonly #log: Logger;
  readonly #failing = new Map<string, { readonly message: string; readonly timer: NodeJS.Timeout }>();

  constructor(log: Logger) {
    this.#log = log;
  }

  failed(what: string, message: string, retryInMs: number): void {
    const before = this.#failing.get(what);
    if (before !== undefined) clearTimeout(before.timer);
    const fields = { what, error: message };
    if (this.#failing.size === 0)
      this.#log.warn(fields, 'requests to the API server fail; what is in the kernel stays enforced');
    else if (before === undefined) this.#log.debug(fields, 'further requests to the API server fail');
    const timer = setTimeout(() => this.succeeded(what), retryInMs + GRACE_MS);
    timer.unref();
    this.#failing.set(what, { message, timer });
  }

  succeeded(what: string): void {
    const before = this.#failing.get(what);
    if (before === undefined) return;
    clearTimeout(before.timer);
    this.#failing.delete(what);
    if (this.#failing.size === 0) this.#log.info({}, 'the API server answers again');
  }

  status(): { readonly ok: boolean; readonly message: string } {
    const [first] = this.#failing;
    return first === undefined
      ? { ok: true, message: 'connected' }
      : { ok: false, message: `${first[0]}: ${first[1].message} (still enforcing what was received)` };
  }

  stop(): void {
    for (const { timer } of this.#failing.values()) clearTimeout(timer);
    this.#failing.clear();
  }
}
