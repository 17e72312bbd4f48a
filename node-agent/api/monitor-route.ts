import type { FastifyInstance } from 'fastify';
import { filter, merge, Observable, share } from 'rxjs';
import type { FlowEvent } from '../flows/types.ts';
import { BadRequestError } from './errors.ts';
import { follow } from './follow.ts';
import { queryString } from './input.ts';
import type { ApiOptions } from './types.ts';

/** `GET /v1/monitor?type=drop|allow&endpoint=ID`: flow events, one JSON object a line, until either side ends. */
export class Monitor {
  readonly #options: ApiOptions;
  readonly #stopped: Observable<unknown>;
  /** Emits nothing: while anybody subscribes, the datapath reports allowed flows. */
  readonly #allowed: Observable<never>;

  /** @param stopped ends every stream */
  constructor(options: ApiOptions, stopped: Observable<unknown>) {
    this.#options = options;
    this.#stopped = stopped;
    this.#allowed = new Observable<never>(() => {
      this.#setVerbose(true);
      return () => this.#setVerbose(false);
    }).pipe(share());
  }

  register(app: FastifyInstance): void {
    const { flows, agent, log } = this.#options;
    app.get('/monitor', (request, reply) => {
      const wanted = filterOf(request.query, [
        ...agent.events().map(({ verdict }) => verdict),
        ...agent.eventSources().map(({ verdict }) => verdict),
      ]);
      const events = flows.events.pipe(filter(wanted.matches));
      reply.hijack();
      const follower = { follower: request.id };
      follow(reply.raw, wanted.verbose ? merge(events, this.#allowed) : events, {
        end: this.#stopped,
        stall: () => log.warn(follower, 'a reader of flow events is too slow: leaving events out for it'),
        error: (error) => log.error({ ...follower, err: error }, 'the stream of flow events ended'),
      });
    });
  }

  #setVerbose(on: boolean): void {
    // After an uninstall there is no datapath to be told, and readers still go away.
    if (this.#options.agent.idle() === undefined) this.#options.core.setVerbose(on);
  }
}

/** Verdicts of the datapath's events, as people ask for them. */
const VERDICTS: readonly (readonly [type: string, verdict: string])[] = [
  ['drop', 'dropped'],
  ['allow', 'allowed'],
];

function filterOf(
  query: unknown,
  ofParts: readonly string[],
): { readonly verbose: boolean; readonly matches: (event: FlowEvent) => boolean } {
  const type = queryString(query, 'type');
  const verdicts = new Map([...VERDICTS, ...ofParts.map((verdict) => [verdict, verdict] as const)]);
  if (type !== undefined && !verdicts.has(type))
    throw new BadRequestError(`query parameter "type" is "${type}"; use ${[...verdicts.keys()].join(' or ')}`);
  const endpoint = queryString(query, 'endpoint');
  if (endpoint !== undefined && !/^\d{1,5}$/.test(endpoint))
    throw new BadRequestError(`query parameter "endpoint" is "${endpoint}", not an endpoint number`);
  return {
    verbose: type === undefined || type === 'allow',
    matches: (event) =>
      (type === undefined || event.verdict === verdicts.get(type)) &&
      (endpoint === undefined || event.endpoint === Number(endpoint)),
  };
}
