import type { FastifyInstance } from 'fastify';
import type { Subscription } from 'rxjs';
import type { FlowEvent } from '../core.ts';
import { BadRequestError } from './errors.ts';
import { queryString } from './input.ts';
import type { ApiOptions } from './types.ts';

/** Bytes that may wait for a slow reader; beyond, events are counted and left out. */
const MAX_PENDING_BYTES = 1 << 20;

/** `GET /v1/monitor?type=drop|allow&endpoint=ID`: flow events, one JSON object a line, until either side ends. */
export class Monitor {
  readonly #options: ApiOptions;
  /** Callbacks that end the streams under way. */
  readonly #streams = new Set<() => void>();
  #verbose = 0;

  constructor(options: ApiOptions) {
    this.#options = options;
  }

  register(app: FastifyInstance): void {
    app.get('/monitor', (request, reply) => {
      const wanted = filterOf(request.query);
      reply.hijack();
      const { raw } = reply;
      raw.writeHead(200, { 'content-type': 'application/x-ndjson', 'cache-control': 'no-store' });
      raw.flushHeaders();
      let lost = 0;
      const subscription: Subscription = this.#options.core.events.subscribe((event) => {
        if (!wanted.matches(event)) return;
        if (raw.writableLength > MAX_PENDING_BYTES) {
          lost++;
          return;
        }
        if (lost > 0) raw.write(`${JSON.stringify({ lost })}\n`);
        lost = 0;
        raw.write(`${JSON.stringify(event)}\n`);
      });
      if (wanted.verbose) this.#setVerbose(1);
      const end = (): void => {
        if (!this.#streams.delete(end)) return;
        subscription.unsubscribe();
        if (wanted.verbose) this.#setVerbose(-1);
        raw.end();
      };
      this.#streams.add(end);
      raw.on('close', end);
      raw.on('error', end);
    });
  }

  /** Ends every stream. */
  stop(): void {
    for (const end of [...this.#streams]) end();
  }

  /** Allowed flows are reported while at least one reader wants them. */
  #setVerbose(change: 1 | -1): void {
    this.#verbose += change;
    // After an uninstall there is no datapath to be told, and readers still go away.
    if (this.#options.idle?.() !== undefined) return;
    this.#options.core.setVerbose(this.#verbose > 0);
  }
}

function filterOf(query: unknown): { readonly verbose: boolean; matches(event: FlowEvent): boolean } {
  const type = queryString(query, 'type');
  if (type !== undefined && type !== 'drop' && type !== 'allow')
    throw new BadRequestError(`query parameter "type" is "${type}"; use drop or allow`);
  const endpoint = queryString(query, 'endpoint');
  if (endpoint !== undefined && !/^\d{1,5}$/.test(endpoint))
    throw new BadRequestError(`query parameter "endpoint" is "${endpoint}", not an endpoint number`);
  return {
    verbose: type !== 'drop',
    matches: (event) =>
      (type === undefined || (type === 'drop') === (event.verdict === 'dropped')) &&
      (endpoint === undefined || event.endpoint === Number(endpoint)),
  };
}
