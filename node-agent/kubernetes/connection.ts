import type { StateDB, Table } from '@weir/statedb';
import type { Logger } from '../core.ts';

/** Silence after the announced retry that counts as success, in milliseconds. */
const GRACE_MS = 10_000;

/** Requests of a kind that fail. Key: `what`. */
interface FailingRequests {
  readonly what: string;
  readonly message: string;
  /** Smaller than that of every kind that began to fail later. */
  readonly at: number;
}

/**
 * Whether the API server answers, from the failures that are reported (table `failingRequests`); logs once when it stops, once when it
 * answers again.
 */
export class Connection {
  readonly #db: StateDB;
  readonly #log: Logger;
  readonly #failing: Table<FailingRequests>;
  /** Handles: they take failures for over of which nothing is heard any more. */
  readonly #timers = new Map<string, NodeJS.Timeout>();

  constructor(db: StateDB, log: Logger) {
    this.#db = db;
    this.#log = log;
    this.#failing = db.table<FailingRequests>({ name: 'failingRequests', key: (row) => row.what });
  }

  failed(what: string, message: string, retryInMs: number): void {
    const { others, before } = this.#db.write([this.#failing], (txn) => {
      const others = txn.count(this.#failing);
      const at = txn.get(this.#failing, what)?.at ?? txn.revision(this.#failing);
      return { others, before: txn.upsert(this.#failing, { what, message, at }) };
    });
    const fields = { what, error: message };
    if (others === 0) this.#log.warn(fields, 'requests to the API server fail; what is in the kernel stays enforced');
    else if (before === undefined) this.#log.debug(fields, 'further requests to the API server fail');
    clearTimeout(this.#timers.get(what));
    const timer = setTimeout(() => this.succeeded(what), retryInMs + GRACE_MS);
    timer.unref();
    this.#timers.set(what, timer);
  }

  succeeded(what: string): void {
    clearTimeout(this.#timers.get(what));
    this.#timers.delete(what);
    const mended = this.#db.write(
      [this.#failing],
      (txn) => txn.delete(this.#failing, what) !== undefined && txn.count(this.#failing) === 0,
    );
    if (mended) this.#log.info({}, 'the API server answers again');
  }

  status(): { readonly ok: boolean; readonly message: string } {
    using snapshot = this.#db.read();
    const [first] = [...snapshot.all(this.#failing)].sort((a, b) => a.at - b.at);
    return first === undefined
      ? { ok: true, message: 'connected' }
      : { ok: false, message: `${first.what}: ${first.message} (still enforcing what was received)` };
  }

  stop(): void {
    for (const timer of this.#timers.values()) clearTimeout(timer);
    this.#timers.clear();
    this.#db.write([this.#failing], (txn) => txn.deleteAll(this.#failing));
  }
}
