/**
 * Whether the API server answers, learnt from every request of a client: who waits before a retry is woken by the first
 * request of anybody that gets through.
 *
 * Guarantees: a recovery is announced at the first answer after a failure when nothing was answered for a second before it;
 * so a server that refuses one kind of requests while it answers others wakes nobody more than once a second.
 */
import { Subject } from 'rxjs';
import { ApiError } from './errors.ts';

const QUIET_MS = 1_000;

export class ServerPulse {
  readonly #recoveries = new Subject<void>();
  /** Emits at every recovery, from within the answer's arrival. */
  readonly recoveries = this.#recoveries.asObservable();
  readonly #now: () => number;
  #failed = false;
  #answeredAt = Number.NEGATIVE_INFINITY;

  /** `now`: milliseconds of a clock that never goes back. */
  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  /** The server has answered a request, be it with a refusal. */
  answered(): void {
    const now = this.#now();
    const recovered = this.#failed && now - this.#answeredAt >= QUIET_MS;
    this.#answeredAt = now;
    this.#failed = false;
    if (recovered) this.#recoveries.next();
  }

  /** A request has failed; only what says that the server cannot serve counts. */
  failed(error: unknown): void {
    if (!(error instanceof ApiError)) return;
    if (error.unavailable) this.#failed = true;
    else this.answered();
  }
}
