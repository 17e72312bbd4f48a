import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Registry } from 'prom-client';
import type { Core, Logger } from '../core.ts';

/**
 * Checks that fail while the agent waits for others (the API server, a retry): a restart mends none of them, so they are readiness, not
 * liveness.
 */
const WAITS: readonly string[] = ['inputs', 'kernel'];

/** /healthz, /readyz and /metrics over TCP, for kubelet's probes and Prometheus. */
export class HealthServer {
  readonly #core: Core;
  readonly #log: Logger;
  readonly #metrics: Registry;
  readonly #ready: () => { readonly ok: boolean; readonly message: string };
  readonly #host: string;
  readonly #port: number;
  readonly #server: Server;

  constructor(options: {
    readonly core: Core;
    readonly log: Logger;
    readonly metrics: Registry;
    /** Whether CNI requests can be served. */
    readonly ready: () => { readonly ok: boolean; readonly message: string };
    readonly host: string;
    readonly port: number;
  }) {
    this.#core = options.core;
    this.#log = options.log;
    this.#metrics = options.metrics;
    this.#ready = options.ready;
    this.#host = options.host;
    this.#port = options.port;
    this.#server = createServer((request, response) => {
      const path = (request.url ?? '/').split('?')[0];
      const send = (status: number, type: string, body: string): void => {
        response.writeHead(status, { 'content-type': type });
        response.end(body);
      };
      if (path === '/metrics') {
        this.#metrics.metrics().then(
          (text) => send(200, this.#metrics.contentType, text),
          (error: unknown) => {
            this.#log.error({ err: error }, 'metrics could not be collected');
            send(500, 'text/plain', `${String(error)}\n`);
          },
        );
      } else if (path === '/healthz') {
        const { checks } = this.#core.health();
        const lines = checks.map((check) => `${check.ok ? 'ok' : 'FAILED'} ${check.name}: ${check.message}\n`);
        const alive = checks.every((check) => check.ok || WAITS.includes(check.name));
        send(alive ? 200 : 503, 'text/plain', lines.join('') || 'ok\n');
      } else if (path === '/readyz') {
        const ready = this.#ready();
        send(ready.ok ? 200 : 503, 'text/plain', `${ready.message}\n`);
      } else {
        send(404, 'text/plain', 'there are /healthz, /readyz and /metrics\n');
      }
    });
  }

  /** Rejects when the address is taken. */
  start(): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#server.once('error', (error) => {
        reject(
          new Error(
            `cannot listen on --health-address ${this.#host}:${this.#port}: ${error.message}; choose another port`,
            { cause: error },
          ),
        );
      });
      this.#server.listen(this.#port, this.#host, () => resolve());
    });
  }

  /** The port in use (of interest when port 0 was asked for). */
  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  stop(): Promise<void> {
    return new Promise((resolve) => {
      this.#server.close(() => resolve());
      this.#server.closeAllConnections();
    });
  }
}
