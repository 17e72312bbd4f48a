/**
 * Metrics for who may have them: HTTPS with a certificate from files (tls-server.ts), and a question about who asks before each answer.
 *
 * Guarantee: a scrape that was let in keeps its connection.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Registry } from 'prom-client';
import { line } from './printable.ts';
import { TlsServer, type TlsServerOptions } from './tls-server.ts';

/** Why somebody gets no metrics: an HTTP status, and a sentence for them. */
export interface Refusal {
  readonly status: number;
  readonly text: string;
}

export interface MetricsServerOptions extends Omit<TlsServerOptions, 'name' | 'answer' | 'failed'> {
  readonly registry: () => Registry;
  /** Judges the header Authorization; undefined: the metrics are given. */
  readonly refusal: (authorization: string | undefined) => Promise<Refusal | undefined>;
}

export class MetricsServer extends TlsServer {
  readonly #options: MetricsServerOptions;

  constructor(options: MetricsServerOptions) {
    super({
      ...options,
      name: 'metrics',
      answer: (request, response) => this.#answer(request, response),
      failed: (response) => end(response, 500, 'the metrics could not be read; see the log'),
    });
    this.#options = options;
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const refusal = await this.#options.refusal(request.headers.authorization);
    this.judge(request, refusal === undefined);
    if (refusal !== undefined) {
      if (refusal.status === 401) response.setHeader('www-authenticate', 'Bearer');
      end(response, refusal.status, refusal.text);
      return;
    }
    if ((request.url ?? '').split('?')[0] !== '/metrics') end(response, 404, 'here is only /metrics');
    else if (request.method !== 'GET' && request.method !== 'HEAD') end(response, 405, 'write GET /metrics');
    else {
      const registry = this.#options.registry();
      const text = await registry.metrics();
      response.writeHead(200, { 'content-type': registry.contentType });
      response.end(text);
    }
  }
}

function end(response: ServerResponse, status: number, text: string): void {
  response.writeHead(status, { 'content-type': 'text/plain; charset=utf-8' });
  response.end(line(text));
}
