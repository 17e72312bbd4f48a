/** HTTP to the API server: where it is and who we are say the Access; the requests are node's own, with kept-alive connections. */
import { type ClientRequest, Agent as HttpAgent, request as httpRequest, type IncomingMessage } from 'node:http';
import { Agent as HttpsAgent, request as httpsRequest, type RequestOptions } from 'node:https';
import { messageOf } from '@weir/process/errors';
import type { Access } from './access.ts';
import { ApiError, KubeError } from './errors.ts';
import { ServerPulse } from './pulse.ts';
import type { WriteFence } from './types.ts';

/** Milliseconds until a connection must be there. An address that leads nowhere answers nothing, for minutes. */
const CONNECT_MS = 5_000;

export interface TransportRequest {
  readonly method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';
  /** Path from the server's root. */
  readonly path: string;
  readonly query?: Readonly<Record<string, string | undefined>>;
  readonly contentType?: string;
  /** Serialised as JSON. */
  readonly body?: unknown;
  readonly signal?: AbortSignal | undefined;
  /** Milliseconds until the headers must be there; and the body too, unless `stream`. */
  readonly timeoutMs: number;
  /** Asked when everything is ready to be sent. */
  readonly fence?: WriteFence | undefined;
}

export interface Transport {
  /** The whole answer, parsed. Throws ApiError for any status but 2xx. */
  json(request: TransportRequest): Promise<unknown>;
  /** The answer's body while it arrives. The caller ends it by aborting `signal` or destroying the message. */
  stream(request: TransportRequest): Promise<IncomingMessage>;
  close(): void;
  readonly pulse: ServerPulse;
  /** Where the last request went: a URL without a slash at its end. */
  readonly server: string;
}

export class NodeTransport implements Transport {
  readonly #access: Access;
  readonly #userAgent: string;
  #server = '';
  readonly pulse = new ServerPulse();
  #agent: { readonly key: string; readonly agent: HttpAgent | HttpsAgent } | undefined;

  constructor(access: Access, userAgent: string) {
    this.#access = access;
    this.#userAgent = userAgent;
  }

  get server(): string {
    return this.#server;
  }

  async json(request: TransportRequest): Promise<unknown> {
    const deadline = new AbortController();
    const timer = setTimeout(() => deadline.abort(), request.timeoutMs);
    const signal = signalOf(request, deadline.signal);
    try {
      const message = await this.#send(request, signal);
      const text = await readText(message);
      if (text === '') return undefined;
      return parseJson(text, request);
    } catch (error) {
      const explained = this.#explain(error, request, deadline.signal.aborted);
      this.pulse.failed(explained);
      throw explained;
    } finally {
      clearTimeout(timer);
    }
  }

  async stream(request: TransportRequest): Promise<IncomingMessage> {
    const deadline = new AbortController();
    const timer = setTimeout(() => deadline.abort(), request.timeoutMs);
    const signal = signalOf(request, deadline.signal);
    try {
      return await this.#send(request, signal);
    } catch (error) {
      const explained = this.#explain(error, request, deadline.signal.aborted);
      this.pulse.failed(explained);
      throw explained;
    } finally {
      clearTimeout(timer);
    }
  }

  close(): void {
    this.#agent?.agent.destroy();
    this.#agent = undefined;
  }

  async #send(request: TransportRequest, signal: AbortSignal): Promise<IncomingMessage> {
    const { server, options: given, proxied } = await this.#access.prepare();
    const options: RequestOptions = { ...given };
    this.#server = server.replace(/\/+$/, '');
    const url = new URL(this.#server + request.path);
    for (const [key, value] of Object.entries(request.query ?? {})) {
      if (value !== undefined) url.searchParams.set(key, value);
    }
    const body = request.body === undefined ? undefined : Buffer.from(JSON.stringify(request.body));
    const secure = url.protocol === 'https:';
    options.agent = proxied ? options.agent : this.#keptAgent(options, secure);
    options.method = request.method;
    options.signal = signal;
    options.headers = {
      ...(options.headers as Record<string, string> | undefined),
      Accept: 'application/json',
      'User-Agent': this.#userAgent,
      ...(body === undefined
        ? {}
        : { 'Content-Type': request.contentType ?? 'application/json', 'Content-Length': String(body.length) }),
    };
    request.fence?.check();
    const message = await new Promise<IncomingMessage>((resolve, reject) => {
      const sent = (secure ? httpsRequest : httpRequest)(url, options, resolve);
      sent.on('error', reject);
      this.#limitConnecting(sent);
      sent.end(body);
    });
    const status = message.statusCode ?? 0;
    if (status < 200 || status > 299) throw await failure(message, status, request);
    this.pulse.answered();
    return message;
  }

  #limitConnecting(sent: ClientRequest): void {
    sent.once('socket', (socket) => {
      if (!socket.connecting) return;
      const timer = setTimeout(() => sent.destroy(new Error(`no connection within ${CONNECT_MS} ms`)), CONNECT_MS);
      const clear = (): void => clearTimeout(timer);
      socket.once('connect', clear);
      sent.once('close', clear);
    });
  }

  /** One agent for as long as the credentials stay: rotated certificates get new connections. */
  #keptAgent(options: RequestOptions, secure: boolean): HttpAgent | HttpsAgent {
    const tls = {
      ca: options.ca,
      cert: options.cert,
      key: options.key,
      rejectUnauthorized: options.rejectUnauthorized,
      servername: options.servername,
    };
    const key = JSON.stringify([
      secure,
      ...Object.values(tls).map((value) => (Buffer.isBuffer(value) ? value.toString('base64') : value)),
    ]);
    if (this.#agent?.key === key) return this.#agent.agent;
    const agent = secure
      ? new HttpsAgent({
          keepAlive: true,
          ...Object.fromEntries(Object.entries(tls).filter((entry) => entry[1] !== undefined)),
        })
      : new HttpAgent({ keepAlive: true });
    this.#agent = { key, agent };
    return agent;
  }

  #explain(error: unknown, request: TransportRequest, timedOut: boolean): Error {
    if (error instanceof KubeError) return error;
    for (const signal of [request.fence?.signal, request.signal]) {
      if (signal?.aborted === true) return signal.reason instanceof Error ? signal.reason : new Error('aborted');
    }
    const what = `${request.method} ${this.#server}${request.path}`;
    if (timedOut) {
      return new ApiError(`${what}: no answer within ${request.timeoutMs} ms`, { status: 0, reason: 'Timeout' });
    }
    return new ApiError(`${what}: ${messageOf(error)}`, { status: 0, reason: 'Unreachable', cause: error });
  }
}

function signalOf({ signal, fence }: TransportRequest, deadline: AbortSignal): AbortSignal {
  const others = [signal, fence?.signal].filter((other) => other !== undefined);
  return others.length === 0 ? deadline : AbortSignal.any([deadline, ...others]);
}

function parseJson(text: string, request: TransportRequest): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new ApiError(`${request.method} ${request.path}: the answer is not JSON: ${messageOf(error)}`, {
      status: 0,
      reason: 'BadAnswer',
      cause: error,
    });
  }
}

async function readText(message: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of message) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks).toString('utf8');
}

async function failure(message: IncomingMessage, status: number, request: TransportRequest): Promise<ApiError> {
  const text = await readText(message);
  let body: unknown;
  try {
    body = JSON.parse(text);
  } catch {
    // A proxy before the API server answers in HTML or plain text: the text is the message.
    body = undefined;
  }
  return apiErrorOf(body ?? { message: text.slice(0, 300) }, status, request, retryAfter(message));
}

/** An ApiError from a `metav1.Status`, as an answer or inside a watch. */
export function apiErrorOf(
  body: unknown,
  status: number,
  request: Pick<TransportRequest, 'method' | 'path'>,
  retryAfterMs?: number,
): ApiError {
  const fields = (typeof body === 'object' && body !== null ? body : {}) as {
    message?: unknown;
    reason?: unknown;
    details?: { retryAfterSeconds?: unknown; kind?: unknown; causes?: unknown };
  };
  const reason = typeof fields.reason === 'string' && fields.reason !== '' ? fields.reason : `Status${status}`;
  const message = typeof fields.message === 'string' && fields.message !== '' ? fields.message : reason;
  const seconds = fields.details?.retryAfterSeconds;
  return new ApiError(`${request.method} ${request.path}: ${status} ${message}`, {
    status,
    reason,
    namespaceGone: isNamespaceGone(status, fields.details),
    retryAfterMs: retryAfterMs ?? (typeof seconds === 'number' && seconds > 0 ? seconds * 1000 : undefined),
  });
}

/** As the API server's admission and registry say it of an object that was to be created in a namespace. */
function isNamespaceGone(status: number, details: { kind?: unknown; causes?: unknown } | undefined): boolean {
  if (status === 404) return details?.kind === 'namespaces';
  const causes: readonly unknown[] = status === 403 && Array.isArray(details?.causes) ? details.causes : [];
  return causes.some((cause) => (cause as { reason?: unknown } | null)?.reason === 'NamespaceTerminating');
}

/** Retry-After in milliseconds: seconds, or an HTTP date. */
function retryAfter(message: IncomingMessage): number | undefined {
  const value = message.headers['retry-after'];
  if (value === undefined) return undefined;
  if (/^\d+$/.test(value)) return Number(value) * 1000;
  const at = Date.parse(value);
  return Number.isNaN(at) ? undefined : Math.max(0, at - Date.now());
}
