import { Outage, REQUEST_TIMEOUT_MS } from '@weir/kube';
import { messageOf } from '@weir/process/errors';
import type { StateDB, Table } from '@weir/statedb';
import type { Logger } from '../core.ts';

/**
 * Silence after the announced retry, in milliseconds, after which nobody tries again: what was to be written is gone. A server that takes
 * requests and answers none is silent for as long as a request may take.
 */
const GRACE_MS = REQUEST_TIMEOUT_MS + 10_000;

/** Requests of a kind that fail. Key: `what`. */
interface FailingRequests {
  readonly what: string;
  readonly message: string;
  /** Smaller than that of every kind that began to fail later. */
  readonly at: number;
}

/**
 * Whether the API server answers, from the failures that are reported (table `failingRequests`); logs when it stops, each minute while that
 * lasts, and when it answers again.
 */
export class Connection {
  readonly #db: StateDB;
  readonly #log: Logger;
  readonly #failing: Table<FailingRequests>;
  readonly #outage: Outage;
  /** Handles: they take failures for over of which nothing is heard any more. */
  readonly #timers = new Map<string, NodeJS.Timeout>();

  constructor(db: StateDB, log: Logger, outage = new Outage()) {
    this.#db = db;
    this.#log = log;
    this.#outage = outage;
    this.#failing = db.table<FailingRequests>({ name: 'failingRequests', key: (row) => row.what });
  }

  failed(what: string, error: unknown, retryInMs: number): void {
    const message = messageOf(error);
    this.#db.write([this.#failing], (txn) => {
      const at = txn.get(this.#failing, what)?.at ?? txn.revision(this.#failing);
      txn.upsert(this.#failing, { what, message, at });
    });
    const { loud, ...fix } = this.#outage.failed(what, error);
    const fields = { what, error: message, ...fix };
    this.#log[loud ? 'warn' : 'debug'](fields, 'requests to the API server fail; what is in the kernel stays enforced');
    clearTimeout(this.#timers.get(what));
    const timer = setTimeout(() => this.#ended(what, 'requests to the API server succeed again'), retryInMs + GRACE_MS);
    timer.unref();
    this.#timers.set(what, timer);
  }

  succeeded(what: string): void {
    this.#outage.answered();
    this.#ended(what, 'the API server answers again');
  }

  #ended(what: string, message: string): void {
    if (!this.#timers.has(what)) return;
    clearTimeout(this.#timers.get(what));
    this.#timers.delete(what);
    const mended = this.#db.write(
      [this.#failing],
      (txn) => txn.delete(this.#failing, what) !== undefined && txn.count(this.#failing) === 0,
    );
    if (!mended) return;
    this.#outage.recovered();
    this.#log.info({}, message);
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
