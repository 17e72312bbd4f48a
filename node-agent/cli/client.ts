import { statSync } from 'node:fs';
import { request as httpRequest, type IncomingMessage } from 'node:http';
import { codeOf, messageOf } from '@weir/process/errors';
import { AgentError, InterruptedError } from './errors.ts';
import { listenerOf } from './listener.ts';

/** An agent that answers a question at all answers within this time, in milliseconds. */
const ANSWER_MS = 10_000;

/** Requests to the agent over its unix socket. Every failure is an `AgentError`, or the signal's reason. A `TimeOver` before any answer is the former. */
export class AgentClient {
  readonly #socket: string;
  readonly #signal: AbortSignal;
  readonly #answerMs: number;

  /**
   * @param signal ends requests and streams
   * @param answerMs how long the agent may take to answer, in milliseconds; of a stream: until it begins
   */
  constructor(socket: string, signal: AbortSignal, answerMs = ANSWER_MS) {
    this.#socket = socket;
    this.#signal = signal;
    this.#answerMs = answerMs;
  }

  async get<T>(path: string): Promise<T> {
    return (await this.#json('GET', path)) as T;
  }

  /** What may take any time to answer. @throws TimeOver, too, when that is the signal's reason: ask something else before */
  async await<T>(path: string, method: 'GET' | 'POST' = 'GET'): Promise<T> {
    return (await this.#answer(method, path, undefined, [], this.#signal)) as T;
  }

  /** The agent's status: it has one when it is not healthy, too (503). */
  async status<T>(): Promise<T> {
    return (await this.#json('GET', '/healthz', undefined, [503])) as T;
  }

  async send<T>(method: 'PUT' | 'DELETE' | 'POST', path: string, body?: unknown): Promise<T> {
    return (await this.#json(method, path, body)) as T;
  }

  /** The lines of a stream without end, until the signal ends it. @throws AgentError when the agent does; InterruptedError, the signal's */
  async *follow(path: string): AsyncGenerator<string> {
    yield* this.lines(path);
    if (!this.#signal.aborted) throw new AgentError(this.#ended());
  }

  /** The lines of an answer as they come. @throws AgentError when the agent ends before it; InterruptedError, the signal's */
  async *lines(path: string): AsyncGenerator<string> {
    const signal = this.#signal;
    const begun = new AbortController();
    const timer = setTimeout(() => begun.abort(new TimeOver(this.#answerMs)), this.#answerMs);
    try {
      const response = await this.#open('GET', path, undefined, AbortSignal.any([signal, begun.signal])).catch(
        (error: unknown) => {
          throw this.#silent(error);
        },
      );
      clearTimeout(timer);
      if (response.statusCode !== 200) throw await this.#failure(response, 'GET');
      response.on('error', () => undefined);
      try {
        yield* linesOf(response);
      } catch (error) {
        if (!signal.aborted) throw new AgentError(`${this.#ended()}: ${messageOf(error)}`);
      }
      if (!signal.aborted && !response.complete) throw new AgentError(this.#ended());
    } catch (error) {
      if (!signal.aborted || error instanceof AgentError) throw error;
    } finally {
      clearTimeout(timer);
    }
    if (signal.reason instanceof InterruptedError) throw signal.reason;
  }

  #ended(): string {
    return `the agent at ${this.#socket} has ended, and the stream with it; follow its successor once that runs`;
  }

  async #json(method: string, path: string, body?: unknown, accepted: readonly number[] = []): Promise<unknown> {
    try {
      const signal = AbortSignal.any([this.#signal, within(this.#answerMs)]);
      return await this.#answer(method, path, body, accepted, signal);
    } catch (error) {
      throw this.#silent(error, method !== 'GET');
    }
  }

  async #answer(
    method: string,
    path: string,
    body: unknown,
    accepted: readonly number[],
    signal: AbortSignal,
  ): Promise<unknown> {
    const response = await this.#open(method, path, body, signal);
    const status = response.statusCode ?? 500;
    if (status >= 300 && !accepted.includes(status)) throw await this.#failure(response, method);
    const text = await readAll(response).catch((error: unknown) => {
      signal.throwIfAborted();
      throw unreachable(this.#socket, error);
    });
    try {
      return text === '' ? undefined : JSON.parse(text);
    } catch (error) {
      throw new AgentError(
        `the agent at ${this.#socket} answered with something other than JSON; is it a Weir agent? ${messageOf(error)}`,
      );
    }
  }

  /** An answer that did not come in time, in words. @param changes whether the request was for a change, which is taken all the same */
  #silent(error: unknown, changes = false): unknown {
    if (!(error instanceof TimeOver)) return error;
    const listener = listenerOf(this.#socket);
    const who = listener === undefined ? '' : ` (process ${listener.pid})`;
    const why =
      listener?.stopped === true
        ? `it is stopped; \`kill -CONT ${listener.pid}\` resumes it`
        : 'it is busy, or hangs: see its log';
    return new AgentError(
      `the agent at ${this.#socket}${who} takes connections and has not answered for ${error.ms / 1000} s: ${why}${
        changes ? '. The agent may still carry out the request: check before you retry' : ''
      }`,
    );
  }

  /** What the agent refuses of a request without a document in it is its arguments: exit code 2. */
  async #failure(response: IncomingMessage, method: string): Promise<AgentError> {
    const status = response.statusCode ?? 500;
    const text = await readAll(response);
    const exitCode = status === 400 && method !== 'PUT' ? 2 : 1;
    const id = response.headers['x-request-id'];
    // Every other status says in words what its cause is.
    const logged = status !== 500 || id === undefined ? '' : ` (request ${String(id)} in the agent's log)`;
    try {
      const body: unknown = JSON.parse(text);
      return new AgentError(`${typeof body === 'string' ? body : JSON.stringify(body)}${logged}`, exitCode, { status });
    } catch {
      return new AgentError(`the agent answered ${status}: ${text.slice(0, 500)}`, exitCode, { status });
    }
  }

  #open(method: string, path: string, body: unknown, signal: AbortSignal): Promise<IncomingMessage> {
    const payload = body === undefined ? undefined : JSON.stringify(body);
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

class TimeOver extends Error {
  readonly ms: number;
  constructor(ms: number) {
    super(`${ms} ms are over`);
    this.ms = ms;
  }
}

/** Aborts with `TimeOver`; no reason for the process to live on. */
export function within(ms: number): AbortSignal {
  const over = new AbortController();
  setTimeout(() => over.abort(new TimeOver(ms)), ms).unref();
  return over.signal;
}

function isSocket(path: string): boolean {
  try {
    return statSync(path).isSocket();
  } catch {
    return true;
  }
}

/** Ended by `\n` alone: what `node:readline` takes for ends of lines besides may stand within JSON. */
async function* linesOf(response: IncomingMessage): AsyncGenerator<string> {
  response.setEncoding('utf8');
  let rest = '';
  for await (const chunk of response) {
    const lines = `${rest}${String(chunk)}`.split('\n');
    rest = lines.pop() ?? '';
    yield* lines;
  }
  if (rest !== '') yield rest;
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
  // The kernel refuses a connection to any other file as it does to a socket that nobody has.
  const code = codeOf(error) === 'ECONNREFUSED' && !isSocket(socket) ? 'ENOTSOCK' : codeOf(error);
  if (code === 'ECONNRESET')
    return new AgentError(`the agent at ${socket} has ended before it answered; ask its successor once that runs`, 1, {
      cause: error,
    });
  return new AgentError(`cannot reach the Weir agent at ${socket}: ${why[code ?? ''] ?? messageOf(error)}`, 1, {
    cause: error,
  });
}
