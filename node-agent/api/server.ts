import { DepthError, parseShallow } from '@weir/process/depth';
import { messageOf } from '@weir/process/errors';
import { newId } from '@weir/process/id';
import { clipped } from '@weir/process/printable';
import fastify, { type FastifyError, type FastifyInstance } from 'fastify';
import { Subject } from 'rxjs';
import type { Condition } from '../parts/contract.ts';
import { auditCalls } from './audit-log.ts';
import { endpointRoutes } from './endpoint-routes.ts';
import { HttpError, SocketError } from './errors.ts';
import { sendJson } from './json.ts';
import { Monitor } from './monitor-route.ts';
import { policyRoutes } from './policy-routes.ts';
import { claimSocketPath } from './socket.ts';
import { SocketGuard } from './socket-guard.ts';
import { statusRoutes } from './status-routes.ts';
import { tableRoutes } from './table-routes.ts';
import type { ApiOptions } from './types.ts';

const BODY_LIMIT_BYTES = 16 << 20;
/** Characters of an error: all problems of one import, as the parser tells them. */
const LONGEST_ERROR = 50_000;

/** The header of an answer whose request is in the log, under this id. */
const REQUEST_ID = 'x-request-id';

/** The agent's API on a unix socket. */
export class ApiServer {
  readonly #options: ApiOptions;
  readonly #socket: string;
  readonly #app: FastifyInstance;
  readonly #monitor: Monitor;
  /** Ends streams. */
  readonly #stopped = new Subject<void>();
  readonly #guard: SocketGuard;
  readonly #stopping = new AbortController();

  constructor(options: ApiOptions & { readonly socket: string; readonly socketLookMs?: number }) {
    this.#options = options;
    this.#socket = options.socket;
    this.#monitor = new Monitor(options, this.#stopped);
    this.#app = this.#build();
    this.#guard = new SocketGuard({
      path: options.socket,
      log: options.log,
      listen: async (path) => {
        await this.#app.listen({ path });
        return this.#app.server;
      },
      accept: (socket) => this.#app.server.emit('connection', socket),
      closeIdle: () => this.#app.server.closeIdleConnections(),
      ...(options.socketLookMs === undefined ? {} : { intervalMs: options.socketLookMs }),
    });
  }

  /** Listens. Throws `SocketError` when the path is taken. */
  async start(): Promise<void> {
    await claimSocketPath(this.#socket);
    try {
      await this.#guard.start();
    } catch (error) {
      throw new SocketError(`cannot listen on ${this.#socket}: ${messageOf(error)}`, { cause: error });
    }
  }

  /** Ends streams, lets requests under way end, removes the socket. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    this.#stopped.next();
    await this.#guard.close();
    await this.#app.close();
    await this.#guard.drained();
  }

  /** Whether clients find the socket. */
  listening(): Condition {
    return this.#guard.status();
  }

  #build(): FastifyInstance {
    const { log } = this.#options;
    const app = fastify({
      bodyLimit: BODY_LIMIT_BYTES,
      forceCloseConnections: 'idle',
      genReqId: newId,
      routerOptions: { maxParamLength: 512 },
    });
    auditCalls(app, log);
    // Cilium's clients send the labels they look for in the body of a GET.
    app.addHttpMethod('GET', { hasBody: true, overrideExisting: true });
    // Whatever the content type says (curl -d says form data), a body is JSON.
    app.removeAllContentTypeParsers();
    app.addContentTypeParser('*', { parseAs: 'string' }, (_request, body, done) => {
      if (body.length === 0) {
        done(null, undefined);
        return;
      }
      try {
        done(null, parseShallow(String(body)));
      } catch (error) {
        const why = error instanceof DepthError ? '' : 'not JSON: ';
        done(new HttpError(400, `the body is refused: ${why}${messageOf(error)}`, { cause: error }));
      }
    });
    app.setErrorHandler((error: FastifyError | HttpError, request, reply) => {
      const status = error.statusCode ?? 500;
      // Who waited is sent to the successor: that is how an agent ends.
      const ending = this.#stopping.signal.aborted && status === 503;
      if (status >= 500 && !ending) {
        const { id, method, url } = request;
        log.error({ request: id, method, url, err: error }, 'api request failed');
        reply.header(REQUEST_ID, id);
      }
      return sendJson(reply, status, clipped(error.message, LONGEST_ERROR));
    });
    app.setNotFoundHandler((request, reply) =>
      sendJson(reply, 404, clipped(`no such path: ${request.method} ${request.url}`, LONGEST_ERROR)),
    );
    app.register(
      (v1, _options, done) => {
        endpointRoutes(v1, this.#options);
        policyRoutes(v1, this.#options, this.#stopping.signal);
        statusRoutes(v1, this.#options);
        tableRoutes(v1, this.#options, this.#stopped);
        this.#monitor.register(v1);
        this.#options.agent.routes(v1);
        done();
      },
      { prefix: '/v1' },
    );
    return app;
  }
}
