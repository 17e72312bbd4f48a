import { ApiError } from './errors.ts';

/** What to do where a program has never reached the API server. */
export const UNREACHED_FIX =
  'the API server has not answered at this address since the start: where kube-proxy does not run, set the chart values apiServer.host and apiServer.port';

const REPEAT_MS = 60_000;

/** How loudly failing requests are told: the first, and at most one a minute, so that the log names what lasts and is not flooded by it. */
export class Outage {
  readonly #now: () => number;
  #toldAt: number | undefined;
  #answered = false;

  /** @param now milliseconds of a clock that never goes back */
  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  /** The API server has answered. */
  answered(): void {
    this.#answered = true;
  }

  /** Whether this failure is to be told, and what to do about it, where that is known. */
  failed(error: unknown): { readonly loud: boolean; readonly fix?: string } {
    const now = this.#now();
    const loud = this.#toldAt === undefined || now - this.#toldAt >= REPEAT_MS;
    if (loud) this.#toldAt = now;
    const unreached = !this.#answered && error instanceof ApiError && error.unreachable;
    return { loud, ...(unreached ? { fix: UNREACHED_FIX } : {}) };
  }
}
