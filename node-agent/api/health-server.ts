import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { delay } from '@weir/process/delay';
import { codeOf } from '@weir/process/errors';
import { line } from '@weir/process/printable';
import type { Registry } from 'prom-client';
import type { Core, Logger } from '../core.ts';

/**
 * Checks that fail while the agent waits for others (the API server, the operator, a retry): a restart mends none of them, so they are readiness, not
 * liveness.
 */
const WAITS: readonly string[] = ['inputs', 'kernel', 'enforcement', 'state-folder'];

const RETRY_MS = 5_000;
const DEFAULT_FLAG = '--health-address';

export interface HealthServerOptions {
  readonly log: Logger;
  /** Undefined: all addresses. */
  readonly host: string | undefined;
  readonly port: number;
  /** How long until an address that is taken is tried again, in milliseconds. Default 5000. */
  readonly retryMs?: number;
  /** The flag that names the address, for the message when it is taken. */
  readonly flag?: '--health-address' | '--metrics-address';
  /** Serves /metrics. */
  readonly metrics?: Registry;
  /** Serves /healthz and /readyz. */
  readonly health?: {
    readonly core: Core;
    /** Whether CNI requests can be served. */
    readonly ready: () => { readonly ok: boolean; readonly message: string };
    /** Why the agent does nothing any more: it is to be left alone then, not restarted. */
    readonly idle?: () => string | undefined;
  };
}

interface Answer {
  readonly status: number;
  readonly text: string;
  readonly type?: string;
}

/** /healthz and /readyz, /metrics, or all of them over TCP, for kubelet's probes and Prometheus. */
export class HealthServer {
  readonly #options: HealthServerOptions;
  readonly #server: Server;
  readonly #stop = new AbortController();
  #retrying: Promise<void> | undefined;

  constructor(options: HealthServerOptions) {
    this.#options = options;
    this.#server = createServer((request, response) => {
      this.#answer((request.url ?? '/').split('?')[0] ?? '/').then(
        ({ status, text, type = 'text/plain' }) => {
          response.writeHead(status, { 'content-type': type });
          response.end(text);
        },
        (error: unknown) => {
          options.log.error({ err: error, path: request.url }, 'answering a probe or scrape failed');
          response.writeHead(500, { 'content-type': 'text/plain' });
          response.end(line(String(error)));
        },
      );
    });
  }

  /**
   * When another process has the port, logs it and retries for as long as it takes: whoever may listen on the node must not keep the agent from
   * enforcing. Rejects when cannot listen on the address for another reason.
   */
  async start(): Promise<void> {
    if (await this.#listen()) return;
    const { log, host, port, flag = DEFAULT_FLAG } = this.#options;
    const fields = { flag, address: `${host ?? '*'}:${port}` };
    log.error(
      fields,
      'another process listens on this address: probes and metrics get no answer; retrying, or choose another port',
    );
    this.#retrying = this.#retry().then(
      (listening) => {
        if (listening) log.info(fields, 'listening: the address is free again');
      },
      (error: unknown) => log.error({ ...fields, err: error }, 'cannot listen on the address'),
    );
  }

  /** Whether it listens now. */
  async #retry(): Promise<boolean> {
    const { retryMs = RETRY_MS } = this.#options;
    while (!this.#stop.signal.aborted) {
      await delay(retryMs, this.#stop.signal, { ref: false });
      if (!this.#stop.signal.aborted && (await this.#listen())) return true;
    }
    return false;
  }

  /** False: the address is taken. */
  #listen(): Promise<boolean> {
    const { log, host, port, flag = DEFAULT_FLAG } = this.#options;
    return new Promise((resolve, reject) => {
      const failed = (error: Error): void => {
        if (codeOf(error) === 'EADDRINUSE') resolve(false);
        else reject(new Error(`cannot listen on ${flag} ${host ?? ''}:${port}: ${error.message}`, { cause: error }));
      };
      this.#server.once('error', failed);
      this.#server.listen(port, host, () => {
        this.#server.off('error', failed);
        // A connection that could not be accepted: without a listener it would end the agent.
        this.#server.on('error', (error) => log.error({ flag, err: error }, 'accepting a probe or scrape failed'));
        resolve(true);
      });
    });
  }

  /** The port in use (of interest when port 0 was asked for). */
  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  async stop(): Promise<void> {
    this.#stop.abort();
    await this.#retrying;
    if (!this.#server.listening) return;
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  async #answer(path: string): Promise<Answer> {
    const { metrics, health } = this.#options;
    if (path === '/metrics' && metrics !== undefined)
      return { status: 200, text: await metrics.metrics(), type: metrics.contentType };
    if (path === '/healthz' && health !== undefined) return alive(health);
    if (path === '/readyz' && health !== undefined) {
      const { ok, message } = health.ready();
      return { status: ok ? 200 : 503, text: line(message) };
    }
    const there = [
      ...(health === undefined ? [] : ['/healthz', '/readyz']),
      ...(metrics === undefined ? [] : ['/metrics']),
    ];
    return { status: 404, text: `here is only ${there.join(', ')}\n` };
  }
}

function alive({ core, idle }: NonNullable<HealthServerOptions['health']>): Answer {
  const why = idle?.();
  if (why !== undefined) return { status: 200, text: line(why) };
  const { checks } = core.health();
  const lines = checks.map(({ name, ok, warning, message }) => {
    const result = warning === true ? 'warning' : 'ok';
    return line(`${ok ? result : 'FAILED'} ${name}: ${message}`);
  });
  const good = checks.every((check) => check.ok || WAITS.includes(check.name));
  return { status: good ? 200 : 503, text: lines.join('') || 'ok\n' };
}
