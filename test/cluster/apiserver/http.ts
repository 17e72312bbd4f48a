/** The HTTP face: bodies in, answers and watch streams out. */
import { timingSafeEqual } from 'node:crypto';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { load } from 'js-yaml';
import { REVIEW_GROUPS } from './discovery.ts';
import { badRequest, ListenError, StatusError, unsupportedMediaType } from './errors.ts';
import { ConnectionCutError, type FaultInjector, type RequestStats } from './faults.ts';
import type { Json, JsonObject } from './json.ts';
import { PROTOBUF, type ProtobufReader } from './protobuf.ts';
import type { ApiRequest } from './request.ts';
import type { Service, WatchAnswer } from './service.ts';
import { BOOKMARK_INTERVAL, type WatchEvent } from './watch.ts';
import { WatchStream } from './watch-stream.ts';

/** As the real server's limit for request bodies. */
const MAX_BODY = 3 * 1024 * 1024;
/** A watch whose client reads so slowly that this many bytes wait for it is cut, as the real server does. */
const MAX_BACKLOG = 64 * 1024 * 1024;

const PARSED = ['application/json', 'application/yaml', 'application/apply-patch+yaml'];

export class HttpFace {
  readonly #service: Service;
  readonly #protobuf: ProtobufReader;
  readonly #faults: FaultInjector;
  readonly #stats: RequestStats;
  readonly #servers: Server[] = [];
  readonly #sockets = new Set<Socket>();
  readonly #handler: Server;
  /** One serialisation an object, however many watches and lists carry it. */
  readonly #texts = new WeakMap<JsonObject, string>();
  #stopped = false;

  constructor(service: Service, protobuf: ProtobufReader, faults: FaultInjector, stats: RequestStats) {
    this.#protobuf = protobuf;
    this.#service = service;
    this.#faults = faults;
    this.#stats = stats;
    this.#handler = this.#newServer();
  }

  async listen(port: number, host: string, secret?: string): Promise<{ port: number; url: string }> {
    const server = this.#newServer(secret);
    await new Promise<void>((resolve, reject) => {
      server.once('error', (error) => reject(new ListenError(host, port, error)));
      server.listen(port, host, resolve);
    });
    this.#servers.push(server);
    const address = server.address();
    const actual = typeof address === 'object' && address !== null ? address.port : port;
    return {
      port: actual,
      url: `http://${host.includes(':') ? `[${host}]` : host}:${actual}${secret === undefined ? '' : `/${secret}`}`,
    };
  }

  handleSocket(socket: Socket): void {
    if (this.#stopped) socket.destroy();
    else this.#handler.emit('connection', socket);
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    for (const socket of this.#sockets) socket.destroy();
    await Promise.all(
      this.#servers.splice(0).map((server) => new Promise<void>((resolve) => server.close(() => resolve()))),
    );
  }

  #newServer(secret?: string): Server {
    const server = createServer({ keepAliveTimeout: 60_000 }, (request, response) => {
      this.#serve(request, response, secret).catch((error: unknown) => this.#fail(response, error));
    });
    server.requestTimeout = 0;
    server.on('connection', (socket: Socket) => {
      socket.setNoDelay(true);
      this.#sockets.add(socket);
      socket.on('close', () => this.#sockets.delete(socket));
      socket.on('error', () => socket.destroy());
    });
    return server;
  }

  async #serve(incoming: IncomingMessage, response: ServerResponse, secret: string | undefined): Promise<void> {
    const url = new URL(secret === undefined ? (incoming.url ?? '/') : admitted(incoming, secret), 'http://server');
    const contentType = (incoming.headers['content-type'] ?? '').split(';')[0]?.trim() ?? '';
    const raw = await readBody(incoming);
    const request: ApiRequest = {
      method: incoming.method ?? 'GET',
      path: url.pathname,
      query: url.searchParams,
      accept: incoming.headers.accept ?? '',
      contentType,
      userAgent: incoming.headers['user-agent'] ?? '',
      body: raw.length === 0 ? undefined : this.#parse(raw, contentType),
    };
    const result = await this.#service.handle(request);
    if (result.kind === 'watch') {
      this.#stream(result, response);
      return;
    }
    for (const warning of result.warnings) {
      response.appendHeader('Warning', `299 - "${warning.replaceAll('\\', '\\\\').replaceAll('"', '\\"')}"`);
    }
    this.#send(response, result.status, result.body, result.contentType ?? 'application/json');
  }

  #parse(raw: Buffer, contentType: string): Json {
    if (contentType !== PROTOBUF) return parseBody(raw.toString('utf8'), contentType);
    return this.#protobuf.read(raw, (apiVersion) => Object.hasOwn(REVIEW_GROUPS, apiVersion.split('/')[0] ?? ''));
  }

  #fail(response: ServerResponse, error: unknown): void {
    if (error instanceof ConnectionCutError) {
      response.destroy();
      return;
    }
    const known = error instanceof StatusError ? error : internal(error);
    if (response.headersSent) {
      response.destroy();
      return;
    }
    const retry = known.details?.retryAfterSeconds;
    if (retry !== undefined) response.setHeader('Retry-After', String(retry));
    this.#send(response, known.httpStatus, known.toStatus(), 'application/json');
  }

  #send(response: ServerResponse, status: number, body: JsonObject | string | Buffer, contentType: string): void {
    const payload = Buffer.isBuffer(body) ? body : Buffer.from(typeof body === 'string' ? body : this.#text(body));
    this.#stats.bytesWritten += payload.length;
    response.writeHead(status, { 'Content-Type': contentType, 'Content-Length': payload.length });
    response.end(payload);
  }

  #text(object: JsonObject): string {
    if (object.metadata === undefined || object.items !== undefined) return JSON.stringify(object);
    let known = this.#texts.get(object);
    if (known === undefined) {
      known = JSON.stringify(object);
      this.#texts.set(object, known);
    }
    return known;
  }

  #stream(answer: WatchAnswer, response: ServerResponse): void {
    const early: string[] = [];
    let write = (line: string): void => {
      early.push(line);
    };
    const { watch, live } = answer.open((event: WatchEvent) => {
      write(`{"type":"${event.type}","object":${this.#text(event.object)}}\n`);
    });
    const stream = new WatchStream(response, this.#faults, answer.info);
    write = (line) => {
      this.#stats.bytesWritten += Buffer.byteLength(line);
      stream.write(line);
      if (response.writableLength > MAX_BACKLOG) response.destroy();
    };
    response.writeHead(200, { 'Content-Type': 'application/json', 'Cache-Control': 'no-cache, private' });
    response.flushHeaders();
    for (const line of early) write(line);
    if (!live) {
      this.#faults.met('watch expired');
      response.end();
      return;
    }
    const closed = this.#faults.opened(answer.info, stream);
    const bookmarks = setInterval(() => watch.bookmarkIfMoved(), BOOKMARK_INTERVAL);
    bookmarks.unref();
    const seconds = answer.timeoutSeconds;
    const timeout =
      seconds === 0
        ? undefined
        : setTimeout(() => {
            watch.bookmarkIfMoved();
            watch.stop();
            response.end();
          }, seconds * 1000);
    timeout?.unref();
    response.on('close', () => {
      watch.stop();
      closed();
      clearInterval(bookmarks);
      clearTimeout(timeout);
    });
  }
}

async function readBody(incoming: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of incoming) {
    const piece = chunk as Buffer;
    size += piece.length;
    if (size > MAX_BODY) {
      throw new StatusError(
        413,
        'RequestEntityTooLarge',
        `the request body exceeds ${MAX_BODY} bytes: split the object`,
        {},
      );
    }
    chunks.push(piece);
  }
  return Buffer.concat(chunks);
}

function parseBody(raw: string, contentType: string): Json {
  const yaml = contentType.endsWith('yaml');
  if (!yaml && contentType !== '' && !contentType.endsWith('json')) throw unsupportedMediaType(PARSED);
  try {
    return (yaml && !raw.trimStart().startsWith('{') ? load(raw) : JSON.parse(raw)) as Json;
  } catch (error) {
    throw badRequest(
      `couldn't parse the request body as ${yaml ? 'YAML' : 'JSON'}: ${error instanceof Error ? error.message : String(error)}`,
    );
  }
}

function internal(error: unknown): StatusError {
  const why = error instanceof Error ? (error.stack ?? error.message) : String(error);
  return new StatusError(500, 'InternalError', `Internal error occurred: ${why}`, {});
}

/**
 * What the request asks for, once it has shown the secret. A page in a browser of this machine knows none, and does not name our address as its
 * host. @throws StatusError
 */
function admitted({ url = '', headers, socket }: IncomingMessage, secret: string): string {
  const hosts = [`${socket.localAddress}:${socket.localPort}`, `localhost:${socket.localPort}`];
  const [given, wanted] = [Buffer.from(url.slice(0, secret.length + 1)), Buffer.from(`/${secret}`)];
  const shown = given.length === wanted.length && timingSafeEqual(given, wanted);
  const rest = url.slice(secret.length + 1);
  if (!shown || !/^(\/|\?|$)/.test(rest) || !hosts.includes(headers.host ?? ''))
    throw new StatusError(401, 'Unauthorized', 'this API server answers who can read its kubeconfig');
  return rest.startsWith('/') ? rest : `/${rest}`;
}
