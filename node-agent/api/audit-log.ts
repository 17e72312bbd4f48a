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
import { commandOf } from '../cni/request.ts';
import type { Logger } from '../core.ts';
import { isObject, type Json } from './input.ts';

const READING: readonly string[] = ['GET', 'HEAD', 'OPTIONS'];
/** CNI commands that change nothing. Runtimes ask STATUS every few seconds. */
const READING_COMMANDS: readonly string[] = ['CHECK', 'STATUS', 'VERSION'];
const UNKNOWN = 'unknown';
const LONGEST_TEXT = 200;
const LONGEST_LABEL = 63;
const MOST_LABELS = 20;

/** What of a call says what it does; undefined: it only reads. For a body that nobody has looked at yet. */
type Essence = (call: { readonly id: unknown; readonly query: Json; readonly body: unknown }) => object | undefined;

const ESSENCE: Readonly<Record<string, Essence>> = {
  'PUT /policy': ({ query, body }) => ({
    ...rulesOf(body),
    ...some('replace', query.replace),
    ...labelList('replaceWithLabels', query['replace-with-labels']),
  }),
  'DELETE /policy': ({ query, body }) => labelList('labels', [query.labels ?? [], body ?? []].flat()),
  'PUT /endpoint/:id': ({ id, body }) => ({
    ...some('endpoint', id),
    ...some('interface', member(body, 'interface-name')),
    ...some('ipv4', member(member(body, 'addressing'), 'ipv4')),
    ...some('container', member(body, 'container-id')),
    ...podOf(body),
  }),
  'DELETE /endpoint/:id': ({ id }) => some('endpoint', id),
  'DELETE /endpoint': ({ body }) => some('container', member(body, 'container-id')),
  'POST /cni': ({ body }) => {
    const command = commandOf(body);
    if (READING_COMMANDS.includes(command)) return undefined;
    const env = member(body, 'env');
    return {
      command,
      ...some('container', member(env, 'CNI_CONTAINERID')),
      ...some('interface', member(env, 'CNI_IFNAME')),
      ...some('netns', member(env, 'CNI_NETNS')),
      ...some('args', member(env, 'CNI_ARGS')),
    };
  },
};

/**
 * Logs the calls of an app. Its routes are added later: one that writes and that is not named here is refused when it is added.
 */
export function auditCalls(app: FastifyInstance, log: Logger): void {
  const callers = new WeakMap<Socket, Caller>();
  const logged = new WeakSet<IncomingMessage>();
  const write = (raw: IncomingMessage, status: number, what: object): void => {
    logged.add(raw);
    const caller = callers.get(raw.socket) ?? NOBODY_KNOWN;
    log.info({ audit: true, ...caller, method: raw.method, ...what, status }, 'call on the socket');
  };

  app.addHook('onRoute', ({ method, url, prefix }) => {
    for (const each of [method].flat()) {
      const key = `${each} ${url.slice(prefix.length)}`;
      if (!READING.includes(each) && ESSENCE[key] === undefined)
        throw new Error(`${key} may write: say in audit-log.ts what of it is logged`);
    }
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
    log.warn({ err: error }, 'it cannot be told who calls on the socket');
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
  const { url } = request.routeOptions;
  if (url === undefined || request.is404) return place(request.raw.url);
  const essence = ESSENCE[`${request.method} ${url.slice(url.startsWith('/v1/') ? 3 : 0)}`];
  const { params, query, body } = request;
  const what = essence?.({ id: member(params, 'id'), query: isObject(query) ? query : {}, body });
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

/** How many rules, and the labels by which they are deleted again. */
function rulesOf(body: unknown): object {
  if (body === undefined || body === null) return {};
  const rules: readonly unknown[] = Array.isArray(body) ? body : [body];
  return {
    rules: rules.length,
    ...labelList(
      'labels',
      rules.flatMap((rule) => member(rule, 'labels') ?? []),
    ),
  };
}

function labelList(name: string, value: unknown): object {
  const texts = new Set([value ?? []].flat().map(labelText));
  if (texts.size === 0) return {};
  const shown = [...texts].slice(0, MOST_LABELS).map((text) => clipped(text, LONGEST_LABEL));
  return { [name]: texts.size > MOST_LABELS ? [...shown, `… and ${texts.size - MOST_LABELS} more`] : shown };
}

/** As people write it; a rule has it as an object, too. */
function labelText(label: unknown): string {
  if (!isObject(label)) return textOf(label);
  const { source, key, value } = label;
  return `${source === undefined ? '' : `${textOf(source)}:`}${textOf(key)}${value === undefined ? '' : `=${textOf(value)}`}`;
}

function podOf(body: unknown): object {
  const [namespace, name] = [member(body, 'k8s-namespace'), member(body, 'k8s-pod-name')];
  return namespace === undefined && name === undefined ? {} : some('pod', `${textOf(namespace)}/${textOf(name)}`);
}

function some(name: string, value: unknown): object {
  return value === undefined || value === null || value === '' ? {} : { [name]: clipped(textOf(value), LONGEST_TEXT) };
}

function textOf(value: unknown): string {
  return typeof value === 'string' ? value : (JSON.stringify(value) ?? '');
}

function member(from: unknown, key: string): unknown {
  return isObject(from) && Object.hasOwn(from, key) ? from[key] : undefined;
}
