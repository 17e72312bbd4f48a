/** HTTP for probes and Prometheus: /healthz, /readyz and, where they are for whoever asks, /metrics. */
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { line } from '@weir/process/printable';
import { InvalidArgumentError } from 'commander';
import type { Registry } from 'prom-client';
import { ConfigError } from './errors.ts';

export interface HealthOptions {
  /** `host:port`, `[v6]:port` or `:port` (all addresses). */
  readonly address: string;
  /** Absent: /metrics is served elsewhere. */
  readonly registry?: () => Registry;
  /** Why the process must be restarted; undefined: it is well. */
  readonly unhealthy: () => string | undefined;
  /** Why it does not do its work yet; undefined: it does. */
  readonly unready: () => string | undefined;
  /** Told of a connection that could not be accepted. */
  readonly onError: (error: Error) => void;
}

export class HealthServer {
  readonly #server: Server;
  readonly #onError: HealthOptions['onError'];
  readonly #at: { readonly host: string | undefined; readonly port: number };

  constructor(options: HealthOptions) {
    this.#at = parseAddress(options.address);
    this.#onError = options.onError;
    this.#server = createServer((request, response) => {
      const say = (status: number, text: string, type = 'text/plain'): void => {
        response.writeHead(status, { 'content-type': type });
        response.end(text);
      };
      const judge = (problem: string | undefined): void =>
        say(problem === undefined ? 200 : 503, line(problem ?? 'ok'));
      const path = (request.url ?? '/').split('?')[0];
      if (path === '/healthz') judge(options.unhealthy());
      else if (path === '/readyz') judge(options.unready());
      else if (path === '/metrics' && options.registry !== undefined) {
        const registry = options.registry();
        registry.metrics().then(
          (text) => say(200, text, registry.contentType),
          (error: unknown) => say(500, line(String(error))),
        );
      } else say(404, `here is only /healthz, /readyz${options.registry === undefined ? '' : ', /metrics'}\n`);
    });
  }

  /** Throws when cannot listen on the address. Returns the port. */
  async start(): Promise<number> {
    await new Promise<void>((resolve, reject) => {
      this.#server.once('error', reject);
      this.#server.listen(this.#at.port, this.#at.host, resolve);
    });
    // Without a listener it would end the operator.
    this.#server.on('error', this.#onError);
    return (this.#server.address() as AddressInfo).port;
  }

  async stop(): Promise<void> {
    if (!this.#server.listening) return;
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }
}

/** Throws ConfigError. */
export function parseAddress(address: string): { readonly host: string | undefined; readonly port: number } {
  const [, bracketed, plain, port] = /^(?:\[([0-9a-fA-F:.]+)\]|([^:[\]]*)):([0-9]{1,5})$/.exec(address) ?? [];
  if (port === undefined || Number(port) > 65535) {
    throw new ConfigError(`address "${address}" is not host:port, [v6]:port or :port: write for example :9964`);
  }
  const host = bracketed ?? plain;
  return { host: host === '' ? undefined : host, port: Number(port) };
}

/** The value of a flag for `parseAddress`; empty: nowhere. */
export function addressFlag(text: string): string {
  if (text === '') return text;
  try {
    parseAddress(text);
  } catch (error) {
    throw new InvalidArgumentError(error instanceof Error ? error.message : String(error));
  }
  return text;
}
