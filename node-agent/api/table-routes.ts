/** Inputs and derived tables of the agent: all its state, for people who debug. */
import { Readable } from 'node:stream';
import { messageOf } from '@weir/process/errors';
import { printableLines } from '@weir/process/printable';
import { type AnyTable, dump, dumpChange, observe, printTable, type StateDB } from '@weir/statedb';
import type { FastifyInstance } from 'fastify';
import { map, type Observable } from 'rxjs';
import { BadRequestError, NotFoundError } from './errors.ts';
import { followPulled } from './follow.ts';
import { queryString } from './input.ts';
import { sendJson } from './json.ts';
import type { TableModel } from './models.ts';
import type { ApiOptions } from './types.ts';

/** A compiled policy would fill a screen; the dump has all of it. */
const CELL_WIDTH = 60;

/** Changes that are turned into lines at once. */
const BATCH = 100;
/** How long a reader may take to take a batch, in milliseconds: while it does not, the table keeps what was deleted. */
const PATIENCE_MS = 30_000;

/** @param stopped ends streams */
export function tableRoutes(
  app: FastifyInstance,
  { core: { db }, log, followPatienceMs = PATIENCE_MS }: Pick<ApiOptions, 'core' | 'log' | 'followPatienceMs'>,
  stopped: Observable<unknown>,
): void {
  app.get('/table', (_request, reply) =>
    sendJson(
      reply,
      200,
      db.tables().map(
        ({ table: _, ...info }): TableModel => ({
          ...info,
          streams: info.streams.map(({ name, lag }) => ({ name, lag })),
        }),
      ),
    ),
  );

  app.get<{ Params: { name: string } }>('/table/:name', (request, reply) => {
    const table = tableOf(db, request.params.name);
    const limit = limitOf(queryString(request.query, 'limit'));
    using snapshot = db.read();
    const text = printTable(snapshot, table, { width: CELL_WIDTH, ...(limit === undefined ? {} : { limit }) });
    return reply.type('text/plain; charset=utf-8').send(printableLines(`${text}\n`));
  });

  app.get<{ Params: { name: string } }>('/table/:name/dump', (request, reply) => {
    const limit = limitOf(queryString(request.query, 'limit'));
    const lines = Readable.from(linesOf(db, tableOf(db, request.params.name), limit));
    return reply.type('application/jsonl; charset=utf-8').send(lines);
  });

  /** All rows, and then each change, as lines of JSON. What a slow reader has not taken is coalesced by key. */
  app.get<{ Params: { name: string } }>('/table/:name/changes', (request, reply) => {
    const table = tableOf(db, request.params.name);
    const follower = request.id;
    const changes = (ready: () => Promise<unknown> | undefined): Observable<string> =>
      observe(db, table, { name: `follower ${follower}`, batch: BATCH, ready }).pipe(
        map((batch) => batch.map((change) => `${dumpChange(table, change)}\n`).join('')),
      );
    reply.hijack();
    followPulled(reply.raw, changes, {
      end: stopped,
      patienceMs: followPatienceMs,
      error: (error) =>
        log.warn({ follower, table: table.name, error: messageOf(error) }, 'the stream of a table ended'),
    });
  });
}

/** The head, and so many rows. As of one instant, however slowly they are read. */
function* linesOf(db: StateDB, table: AnyTable, limit = Infinity): Generator<string> {
  using snapshot = db.read();
  let left = limit + 1;
  for (const line of dump(snapshot, table)) {
    if (left === 0) return;
    left -= 1;
    yield `${line}\n`;
  }
}

function tableOf(db: StateDB, name: string): AnyTable {
  const tables = db.tables();
  const found = tables.find((info) => info.name === name);
  if (found === undefined)
    throw new NotFoundError(`no table "${name}"; there are: ${tables.map((info) => info.name).join(', ')}`);
  return found.table;
}

function limitOf(text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  if (!/^[0-9]{1,9}$/.test(text))
    throw new BadRequestError(`query parameter "limit" must be a number of rows, not "${text}"`);
  return Number(text);
}
