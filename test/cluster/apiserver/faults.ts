/** Injected faults and request statistics: both look at every request by the same description. */
import { StatusError } from './errors.ts';
import type { Faults, RequestCount, RequestFilter, Stats } from './types.ts';

export interface RequestInfo {
  readonly verb: string;
  readonly group: string;
  readonly resource: string;
  readonly namespace: string;
  readonly name: string;
  readonly fieldManager: string;
  readonly userAgent: string;
}

export function matches(filter: RequestFilter, info: RequestInfo): boolean {
  for (const key of ['verb', 'group', 'resource', 'namespace', 'name', 'fieldManager'] as const) {
    const wanted = filter[key];
    if (wanted !== undefined && wanted !== '*' && wanted !== info[key]) return false;
  }
  return filter.userAgent === undefined || filter.userAgent === '*' || info.userAgent.startsWith(filter.userAgent);
}

interface OpenWatch {
  readonly info: RequestInfo;
  readonly cut: () => void;
}

interface Failure {
  readonly status: number;
  readonly filter: RequestFilter;
  left: number;
}

const REASONS: Readonly<Record<number, string>> = {
  400: 'BadRequest',
  401: 'Unauthorized',
  403: 'Forbidden',
  404: 'NotFound',
  409: 'Conflict',
  410: 'Expired',
  422: 'Invalid',
  429: 'TooManyRequests',
  500: 'InternalError',
  503: 'ServiceUnavailable',
  504: 'Timeout',
};

export class FaultInjector implements Faults {
  readonly #watches = new Set<OpenWatch>();
  readonly #delays = new Set<{ ms: number; filter: RequestFilter }>();
  readonly #failures = new Set<Failure>();
  readonly #expire: () => void;

  /** `expire` forgets the history of the store. */
  constructor(expire: () => void) {
    this.#expire = expire;
  }

  get openWatches(): number {
    return this.#watches.size;
  }

  /** Registers an open watch; the returned function takes it out again. */
  opened(info: RequestInfo, cut: () => void): () => void {
    const watch = { info, cut };
    this.#watches.add(watch);
    return () => {
      this.#watches.delete(watch);
    };
  }

  /** Milliseconds to wait before answering. */
  delayOf(info: RequestInfo): number {
    return [...this.#delays].filter((delay) => matches(delay.filter, info)).reduce((sum, delay) => sum + delay.ms, 0);
  }

  /** @throws StatusError when a failure is set for this request. */
  check(info: RequestInfo): void {
    for (const failure of this.#failures) {
      if (!matches(failure.filter, info)) continue;
      failure.left -= 1;
      if (failure.left <= 0) this.#failures.delete(failure);
      const reason = REASONS[failure.status] ?? 'InternalError';
      const details = failure.status === 429 || failure.status === 503 ? { retryAfterSeconds: 1 } : {};
      throw new StatusError(failure.status, reason, `injected fault: HTTP ${failure.status}`, details);
    }
  }

  dropWatches(filter: RequestFilter = {}): number {
    const chosen = [...this.#watches].filter((watch) => matches(filter, watch.info));
    for (const watch of chosen) watch.cut();
    return chosen.length;
  }

  delay(ms: number, filter: RequestFilter = {}): () => void {
    const delay = { ms, filter };
    this.#delays.add(delay);
    return () => {
      this.#delays.delete(delay);
    };
  }

  fail(status: number, filter: RequestFilter = {}, count = Number.POSITIVE_INFINITY): () => void {
    const failure = { status, filter, left: count };
    this.#failures.add(failure);
    return () => {
      this.#failures.delete(failure);
    };
  }

  expireWatches(): void {
    this.#expire();
  }

  clear(): void {
    this.#delays.clear();
    this.#failures.clear();
  }
}

export class RequestStats implements Stats {
  readonly #counts = new Map<string, { info: RequestInfo; count: number }>();
  readonly #revision: () => number;
  readonly #openWatches: () => number;
  bytesWritten = 0;

  constructor(revision: () => number, openWatches: () => number) {
    this.#revision = revision;
    this.#openWatches = openWatches;
  }

  get openWatches(): number {
    return this.#openWatches();
  }

  get resourceVersion(): number {
    return this.#revision();
  }

  /** Counts a request; objects' names and namespaces are left out so that the table stays small. */
  record(info: RequestInfo): void {
    const key = [info.verb, info.group, info.resource, info.fieldManager, info.userAgent].join('\n');
    const row = this.#counts.get(key);
    if (row === undefined) this.#counts.set(key, { info, count: 1 });
    else row.count += 1;
  }

  requests(filter: RequestFilter = {}): readonly RequestCount[] {
    const { namespace: _ns, name: _name, ...kept } = filter;
    return [...this.#counts.values()]
      .filter((row) => matches(kept, row.info))
      .map(({ info, count }) => ({
        verb: info.verb,
        group: info.group,
        resource: info.resource,
        fieldManager: info.fieldManager,
        userAgent: info.userAgent,
        count,
      }));
  }

  count(filter: RequestFilter = {}): number {
    return this.requests(filter).reduce((sum, row) => sum + row.count, 0);
  }

  reset(): void {
    this.#counts.clear();
    this.bytesWritten = 0;
  }
}
