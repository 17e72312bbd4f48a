import { request as httpRequest, type IncomingMessage } from 'node:http';
import { createInterface } from 'node:readline';
import { codeOf, messageOf } from '../config/system-error.ts';
import { AgentError } from './errors.ts';

/** Requests to the agent over its unix socket. Every failure is an `AgentError`, or the signal's reason. */
export class AgentClient {
  readonly #socket: string;
  readonly #signal: AbortSignal;

  /** @param signal ends requests and streams */
  constructor(socket: string, signal: AbortSignal) {
    this.#socket = socket;
    this.#signal = signal;
  }

  async get<T>(path: string): Promise<T> {
    return (await this.#json('GET', path)) as T;
  }

  /** The agent's status: it has one when it is not healthy, too (503). */
  async status<T>(): Promise<T> {
    return (await this.#json('GET', '/healthz', undefined, [503])) as T;
  }

  async send<T>(method: 'PUT' | 'DELETE' | 'POST', path: string, body?: unknown): Promise<T> {
    return (await this.#json(method, path, body)) as T;
  }

  /** The lines of a stream, until the agent or the signal ends it. */
  async *lines(path: string): AsyncGenerator<string> {
    const signal = this.#signal;
    const response = await this.#open('GET', path).catch((error: unknown) => {
      if (!signal.aborted) throw error;
    });
    if (response === undefined) return;
    if (response.statusCode !== 200) throw await this.#failure(response);
    response.on('error', () => undefined);
    try {
      for await (const line of createInterface({ input: response })) yield line;
    } catch (error) {
      if (!signal.aborted) throw new AgentError(`the agent at ${this.#socket} ended the stream: ${messageOf(error)}`);
    }
  }

  async #json(method: string, path: string, body?: unknown, accepted: readonly number[] = []): Promise<unknown> {
    const response = await this.#open(method, path, body);
    const status = response.statusCode ?? 500;
    if (status >= 300 && !accepted.includes(status)) throw await this.#failure(response);
    const text = await readAll(response).catch((error: unknown) => {
      this.#signal.throwIfAborted();
      throw unreachable(this.#socket, error);
    });
    try {
      return text === '' ? undefined : JSON.parse(text);
    } catch (error) {
      throw new AgentError(
        `the agent at ${this.#socket} answered something else than JSON; is it a Weir agent? ${messageOf(error)}`,
      );
    }
  }

  async #failure(response: IncomingMessage): Promise<AgentError> {
    const text = await readAll(response);
    try {
      const body: unknown = JSON.parse(text);
      return new AgentError(typeof body === 'string' ? body : JSON.stringify(body));
    } catch {
      return new AgentError(`the agent answered ${response.statusCode}: ${text.slice(0, 500)}`);
    }
  }

  #open(method: string, path: string, body?: unknown): Promise<IncomingMessage> {
    const payload = body === undefined ? undefined : JSON.stringify(body);
    const signal = this.#signal;
    return new Promise((resolve, reject) => {
      const request = httpRequest(
        {
          socketPath: this.#socket,
          path: `/v1${path}`,
          method,
          agent: false,
          headers:
            payload === undefined
              ? {}
              : { 'content-type': 'application/json', 'content-length': Buffer.byteLength(payload) },
          signal,
        },
        resolve,
      );
      request.on('error', (error) => reject(signal.aborted ? signal.reason : unreachable(this.#socket, error)));
      request.end(payload);
    });
  }
}

async function readAll(response: IncomingMessage): Promise<string> {
  let text = '';
  response.setEncoding('utf8');
  for await (const chunk of response) text += String(chunk);
  return text;
}

function unreachable(socket: string, error: unknown): AgentError {
  const why: Readonly<Record<string, string>> = {
    ENOENT: 'there is no such socket: is the agent running on this node? Name another with --socket or WEIR_SOCKET',
    ECONNREFUSED: 'nobody listens on the socket: the agent has ended; see its log and start it again',
    EACCES: 'permission denied: run as root',
    ENOTSOCK: "it is not a socket: name the agent's with --socket or WEIR_SOCKET",
  };
  return new AgentError(
    `cannot reach the Weir agent at ${socket}: ${why[codeOf(error) ?? ''] ?? messageOf(error)}`,
    1,
    { cause: error },
  );
}
