/**
 * Who changed what through the agent's socket: one line of the log for each call that writes, as it is answered, refused ones included.
 *
 * Guarantees: a line has `audit: true`, the caller as the kernel knows it (`uid`, `gid`, `pid`; `unknown` where the kernel does not say), what
 * was asked for, and the status of the answer. It is written whether or not the caller waits for its answer, and has a bounded length.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { clipped } from '@weir/process/printable';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import { socketPeer } from 'libbpf-ts';
import type { Logger } from '../core.ts';
import { some } from './audit-fields.ts';
import { isObject } from './input.ts';

const READING: readonly string[] = ['GET', 'HEAD', 'OPTIONS'];
const UNKNOWN = 'unknown';
const LONGEST_TEXT = 200;

/**
 * Logs the calls of an app. Its routes are added later: one that writes and has no `config.audit` is refused when it is added.
 */
export function auditCalls(app: FastifyInstance, log: Logger): void {
  const callers = new WeakMap<Socket, Caller>();
  const logged = new WeakSet<IncomingMessage>();
  const write = (raw: IncomingMessage, status: number, what: object): void => {
    logged.add(raw);
    const caller = callers.get(raw.socket) ?? NOBODY_KNOWN;
    log.info({ audit: true, ...caller, method: raw.method, ...what, status }, 'call on the socket');
  };

  app.addHook('onRoute', ({ method, url, config }) => {
    for (const each of [method].flat())
      if (!READING.includes(each) && config?.audit === undefined)
        throw new Error(`${each} ${url} may write: say in the route's config.audit what of it is logged`);
  });
  // Now, and not when the call is answered: by then the caller may have closed the connection.
  app.server.on('connection', (socket: Socket) => callers.set(socket, callerOf(socket, log)));
  app.addHook('onSend', (request, reply, payload, done) => {
    if (!READING.includes(request.method)) {
      const what = describe(request);
      if (what !== undefined) write(request.raw, reply.statusCode, { ...what, ...problem(reply.statusCode, payload) });
      else logged.add(request.raw);
    }
    done();
  });
  // What fastify answers by itself knows no hooks: a path that cannot be decoded, a call that comes while the agent stops.
  app.server.on('request', (raw: IncomingMessage, response: ServerResponse) => {
    response.once('close', () => {
      const answered = response.writableEnded && !logged.has(raw);
      if (answered && !READING.includes(raw.method ?? '')) write(raw, response.statusCode, place(raw.url));
    });
  });
}

interface Caller {
  readonly uid: number | typeof UNKNOWN;
  readonly gid: number | typeof UNKNOWN;
  readonly pid: number | typeof UNKNOWN;
}

const NOBODY_KNOWN: Caller = { uid: UNKNOWN, gid: UNKNOWN, pid: UNKNOWN };

function callerOf(socket: Socket, log: Logger): Caller {
  try {
    const fd = descriptorOf(socket);
    const peer = fd === undefined ? undefined : socketPeer(fd);
    return peer === undefined ? NOBODY_KNOWN : { ...peer, pid: peer.pid ?? UNKNOWN };
  } catch (error) {
    log.warn({ err: error }, 'cannot identify the caller on the socket');
    return NOBODY_KNOWN;
  }
}

/** Node has no public way to a socket's descriptor. */
function descriptorOf(socket: Socket): number | undefined {
  const { _handle: handle } = socket as { readonly _handle?: unknown };
  const fd = isObject(handle) ? handle.fd : undefined;
  return typeof fd === 'number' && fd >= 0 ? fd : undefined;
}

/** Undefined: the call only reads. */
function describe(request: FastifyRequest): object | undefined {
  const { url, config } = request.routeOptions;
  if (url === undefined || request.is404) return place(request.raw.url);
  const { params, query, body } = request;
  const what = config.audit?.({ params, query: isObject(query) ? query : {}, body });
  return what === undefined ? undefined : { route: url, ...what };
}

function place(url = ''): object {
  return { url: clipped(url, LONGEST_TEXT) };
}

/** Errors are JSON strings; the plugin's are objects. */
function problem(status: number, payload: unknown): object {
  if (status < 400) return {};
  return some('error', typeof payload === 'string' && payload.startsWith('"') ? JSON.parse(payload) : payload);
}
