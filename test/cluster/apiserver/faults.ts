/** Injected faults and request statistics: both look at every request by the same description. */
import { StatusError } from './errors.ts';
import type { FaultKind, Faults, RequestCount, RequestFilter, Stats } from './types.ts';

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

/** The connection of an open watch. */
export interface WatchConnection {
  cut(): void;
  tear(): void;
  /** Sends what was held. */
  release(): void;
}

interface OpenWatch {
  readonly info: RequestInfo;
  readonly connection: WatchConnection;
}

/** The answer to a write does not reach its client. */
export class ConnectionCutError extends Error {}

interface Failure {
  readonly status: number;
  readonly filter: RequestFilter;
  left: number;
}

interface Loss {
  readonly how: number | 'cut';
  readonly filter: RequestFilter;
}

const READS: readonly string[] = ['get', 'list', 'watch'];

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
  readonly #losses = new Set<Loss>();
  readonly #holds = new Set<{ readonly filter: RequestFilter }>();
  readonly #counts: Record<FaultKind, number> = {
    'request failed': 0,
    'request delayed': 0,
    'answer lost': 0,
    'watch cut': 0,
    'watch torn': 0,
    'event held': 0,
    'watch expired': 0,
  };
  readonly #expire: () => void;

  /** `expire` forgets the history of the store. */
  constructor(expire: () => void) {
    this.#expire = expire;
  }

  get openWatches(): number {
    return this.#watches.size;
  }

  get counts(): Readonly<Record<FaultKind, number>> {
    return { ...this.#counts };
  }

  /** A client has met a fault. */
  met(kind: FaultKind): void {
    this.#counts[kind] += 1;
  }

  /** Registers an open watch; the returned function takes it out again. */
  opened(info: RequestInfo, connection: WatchConnection): () => void {
    const watch = { info, connection };
    this.#watches.add(watch);
    return () => {
      this.#watches.delete(watch);
    };
  }

  /** Milliseconds to wait before answering. */
  delayOf(info: RequestInfo): number {
    const delays = [...this.#delays].filter((delay) => matches(delay.filter, info));
    if (delays.length > 0) this.met('request delayed');
    return delays.reduce((sum, delay) => sum + delay.ms, 0);
  }

  /** @throws StatusError when a failure is set for this request. */
  check(info: RequestInfo): void {
    for (const failure of this.#failures) {
      if (!matches(failure.filter, info)) continue;
      failure.left -= 1;
      if (failure.left <= 0) this.#failures.delete(failure);
      this.met('request failed');
      throw injected(failure.status);
    }
  }

  /** @throws StatusError or ConnectionCutError when the answer to this request, which has been carried out, is to be lost. */
  answered(info: RequestInfo): void {
    if (READS.includes(info.verb)) return;
    for (const { how, filter } of this.#losses) {
      if (!matches(filter, info)) continue;
      this.met('answer lost');
      throw how === 'cut' ? new ConnectionCutError('injected fault: the connection is cut') : injected(how);
    }
  }

  /** Whether events of this watch wait. */
  holds(info: RequestInfo): boolean {
    return [...this.#holds].some(({ filter }) => matches(filter, info));
  }

  dropWatches(filter: RequestFilter = {}): number {
    const chosen = this.#open(filter);
    for (const { connection } of chosen) {
      this.met('watch cut');
      connection.cut();
    }
    return chosen.length;
  }

  tearWatches(filter: RequestFilter = {}): number {
    const chosen = this.#open(filter);
    for (const { connection } of chosen) connection.tear();
    return chosen.length;
  }

  holdWatches(filter: RequestFilter = {}): () => void {
    const hold = { filter };
    this.#holds.add(hold);
    return () => {
      this.#holds.delete(hold);
      for (const { info, connection } of this.#open(filter)) if (!this.holds(info)) connection.release();
    };
  }

  loseAnswers(how: number | 'cut', filter: RequestFilter = {}): () => void {
    const loss = { how, filter };
    this.#losses.add(loss);
    return () => {
      this.#losses.delete(loss);
    };
  }

  #open(filter: RequestFilter): readonly OpenWatch[] {
    return [...this.#watches].filter((watch) => matches(filter, watch.info));
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
    this.#losses.clear();
    this.#holds.clear();
    for (const { connection } of this.#watches) connection.release();
  }
}

function injected(status: number): StatusError {
  const reason = REASONS[status] ?? 'InternalError';
  const details = status === 429 || status === 503 ? { retryAfterSeconds: 1 } : {};
  return new StatusError(status, reason, `injected fault: HTTP ${status}`, details);
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
