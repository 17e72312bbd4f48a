import { ApiError } from './errors.ts';

/** What to do where a program has never reached the API server. */
export const UNREACHED_FIX =
  'the API server has not answered at this address since the start: where kube-proxy does not run, set the chart values apiServer.host and apiServer.port';

const REPEAT_MS = 60_000;
/** No failure for as long ends an outage: what fails is tried again within 5 s, and a request may take most of the rest. */
const QUIET_MS = 30_000;
/** Of failures that are the server's, whatever was asked of it. */
const SERVER = '';

/** When failures of one trouble were told, and when there was one last; in milliseconds. */
interface Trouble {
  readonly toldAt: number;
  readonly failedAt: number;
}

/**
 * How loudly failing requests are told: the first of an outage, and at most one a minute, so that the log names what lasts and is not
 * flooded by it. A server that is unavailable is one outage, whatever is asked; what it refuses is one for each kind of requests.
 */
export class Outage {
  readonly #now: () => number;
  /** By kind of requests, or SERVER. */
  readonly #troubles = new Map<string, Trouble>();
  #answered = false;

  /** @param now milliseconds of a clock that never goes back */
  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  /** The API server has answered a request. */
  answered(): void {
    this.#answered = true;
  }

  /** Nothing fails any more: the next failure is told. */
  recovered(): void {
    this.#troubles.clear();
  }

  /** Whether this failure of requests of a kind is to be told, and what to do about it, where that is known. */
  failed(what: string, error: unknown): { readonly loud: boolean; readonly fix?: string } {
    const now = this.#now();
    const of = error instanceof ApiError && error.unavailable ? SERVER : what;
    const before = this.#troubles.get(of);
    const loud = before === undefined || now - before.failedAt >= QUIET_MS || now - before.toldAt >= REPEAT_MS;
    this.#troubles.set(of, { toldAt: loud ? now : before.toldAt, failedAt: now });
    const unreached = !this.#answered && error instanceof ApiError && error.unreachable;
    return { loud, ...(unreached ? { fix: UNREACHED_FIX } : {}) };
  }
}
