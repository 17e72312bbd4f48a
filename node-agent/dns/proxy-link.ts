/** The agent's end of the DNS proxy (protocol.ts): says what tables have, and takes what the proxy tells. */
import { connect, type Socket } from 'node:net';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { messageOf } from '@weir/process/errors';
import type { Logger } from '../core.ts';
import type { FromProxy, ToProxy } from './protocol.ts';
import { readFromProxy } from './read-from-proxy.ts';
import { Telling, type TellingCore } from './telling.ts';

const RETRY_MS = 500;

export interface ProxyLinkOptions {
  readonly core: TellingCore;
  /** The proxy's socket. */
  readonly path: string;
  readonly log: Logger;
  readonly receive: (message: FromProxy) => void;
  /** A proxy is there, and tells all names that it has. */
  readonly connected: () => void;
}

export class ProxyLink {
  readonly #options: ProxyLinkOptions;
  readonly #stop = new AbortController();
  #running: Promise<void> | undefined;
  #socket: Socket | undefined;
  #problem: string | undefined = 'it has not been reached yet';

  constructor(options: ProxyLinkOptions) {
    this.#options = options;
  }

  /** Why nobody answers; undefined: the proxy has all that the agent has. */
  get problem(): string | undefined {
    return this.#problem;
  }

  start(): void {
    this.#running = this.#run(this.#stop.signal);
  }

  async stop(): Promise<void> {
    this.#stop.abort();
    await this.#running;
  }

  /** Undefined: no proxy is there to hear it. */
  say(message: ToProxy): true | undefined {
    if (this.#socket === undefined) return undefined;
    this.#socket.write(`${JSON.stringify(message)}\n`);
    return true;
  }

  async #run(signal: AbortSignal): Promise<void> {
    const { log, path } = this.#options;
    while (!signal.aborted) {
      try {
        await this.#converse(signal);
        this.#problem = 'it has gone';
      } catch (error) {
        const why = messageOf(error);
        if (!signal.aborted && this.#problem !== why) log.debug({ path, error: why }, 'the DNS proxy is not there');
        this.#problem = why;
      }
      await sleep(RETRY_MS, undefined, { signal }).catch(() => undefined);
    }
  }

  async #converse(outer: AbortSignal): Promise<void> {
    const { path, connected, log } = this.#options;
    const socket = connect(path);
    const ended = new AbortController();
    const signal = AbortSignal.any([outer, ended.signal]);
    const { promise: closed, resolve: close } = Promise.withResolvers<Error | undefined>();
    let failure: Error | undefined;
    socket.on('error', (error) => {
      failure = error;
    });
    socket.once('close', () => {
      ended.abort();
      close(failure);
    });
    signal.addEventListener('abort', () => socket.destroy(), { once: true });
    try {
      await new Promise<void>((resolve, reject) => {
        socket
          .once('connect', resolve)
          .once('error', reject)
          .once('close', () => reject(new Error('closed')));
      });
      connected();
      const heard = this.#hear(socket).catch((error: unknown) => socket.destroy(error as Error));
      using telling = new Telling(this.#options.core, socket);
      await telling.all(signal);
      this.#socket = socket;
      this.#problem = undefined;
      log.info({ path }, 'the DNS proxy has the rules and names of this node');
      await Promise.all([heard, telling.changes(signal)]);
    } catch (error) {
      if (!signal.aborted) throw error;
    } finally {
      this.#socket = undefined;
      socket.destroy();
    }
    const error = await closed;
    if (error !== undefined) throw error;
  }

  async #hear(socket: Socket): Promise<void> {
    for await (const line of createInterface({ input: socket })) {
      const message = readFromProxy(line);
      if (message === undefined) throw new Error(`the DNS proxy said what is no message: ${line.slice(0, 200)}`);
      this.#options.receive(message);
    }
  }
}
