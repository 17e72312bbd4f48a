/** The agent's end of the proxy: a unix socket, on which the newest connection counts. */
import { chmodSync, rmSync } from 'node:fs';
import { createServer, type Server, type Socket } from 'node:net';
import { createInterface } from 'node:readline';
import type { Logger } from 'pino';
import type { FromProxy, ToProxy } from '../protocol.ts';
import { readToProxy } from './read-message.ts';

export interface AgentLinkOptions {
  readonly path: string;
  readonly log: Logger;
  /** What the agent says, one after the other: the next line is read when this one is in force. */
  readonly receive: (message: ToProxy) => Promise<void>;
  /** All that an agent is told after its connect. */
  readonly greeting: () => Iterable<FromProxy>;
}

/** An agent that does not read by then is cut off: after its next connect it is told all. */
const MOST_UNREAD_BYTES = 16 << 20;
/** Nothing waits for what became of a question. */
const QUERIES_EVERY_MS = 50;

export class AgentLink {
  readonly #options: AgentLinkOptions;
  #server: Server | undefined;
  #socket: Socket | undefined;
  /** It has been told all names. What changes meanwhile waits. */
  #greeted = false;
  #unsent = '';
  #flushing: NodeJS.Immediate | undefined;
  #queries: NodeJS.Timeout | undefined;

  constructor(options: AgentLinkOptions) {
    this.#options = options;
  }

  get connected(): boolean {
    return this.#socket !== undefined;
  }

  async start(): Promise<void> {
    const { path } = this.#options;
    rmSync(path, { force: true });
    const server = createServer((socket) => this.#connect(socket));
    this.#server = server;
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    server.once('error', reject).listen(path, resolve);
    await promise;
    chmodSync(path, 0o600);
  }

  async stop(): Promise<void> {
    this.#flush();
    this.#socket?.destroy();
    const server = this.#server;
    if (server === undefined) return;
    await new Promise((resolve) => server.close(resolve));
  }

  /** Nobody hears it while there is no agent. Lines of one turn of the event loop go out together, and questions with what is told next. */
  tell(message: FromProxy): void {
    if (this.#socket === undefined) return;
    this.#unsent += `${JSON.stringify(message)}\n`;
    if (message.type === 'query') this.#queries ??= setTimeout(() => this.#flush(), QUERIES_EVERY_MS);
    else this.#flushing ??= setImmediate(() => this.#flush());
  }

  #flush(): void {
    clearImmediate(this.#flushing);
    clearTimeout(this.#queries);
    this.#flushing = undefined;
    this.#queries = undefined;
    const socket = this.#socket;
    if (socket === undefined || this.#unsent === '') return;
    if (this.#greeted) {
      socket.write(this.#unsent);
      this.#unsent = '';
    }
    if (socket.writableLength + this.#unsent.length <= MOST_UNREAD_BYTES) return;
    this.#options.log.warn('the agent does not read what the DNS proxy tells; its connection is closed');
    socket.destroy();
  }

  #connect(socket: Socket): void {
    const { log } = this.#options;
    this.#socket?.destroy();
    this.#socket = socket;
    this.#greeted = false;
    this.#unsent = '';
    log.info('the agent is connected');
    socket.on('error', (error) => log.debug({ err: error }, 'the connection of the agent failed'));
    socket.once('close', () => {
      if (this.#socket !== socket) return;
      this.#socket = undefined;
      log.info('the agent is gone; the DNS proxy goes on with what it has');
    });
    this.#greet(socket).catch((error: unknown) => socket.destroy(error instanceof Error ? error : undefined));
    this.#listen(socket).catch((error: unknown) => {
      log.error({ err: error }, 'what the agent said cannot be put in force; its connection is closed');
      socket.destroy();
    });
  }

  /** The greeting is of one instant, and what has changed since follows it. */
  async #greet(socket: Socket): Promise<void> {
    let lines = '';
    for (const message of this.#options.greeting()) {
      lines += `${JSON.stringify(message)}\n`;
      if (lines.length < 1 << 16) continue;
      if (!socket.write(lines))
        await new Promise<void>((resolve) => socket.once('drain', resolve).once('close', resolve));
      else await new Promise((resolve) => setImmediate(resolve));
      if (socket.destroyed) return;
      lines = '';
    }
    socket.write(lines);
    if (this.#socket !== socket) return;
    this.#greeted = true;
    this.#flush();
  }

  async #listen(socket: Socket): Promise<void> {
    for await (const line of createInterface({ input: socket })) {
      const message = readToProxy(line);
      if (message === undefined) throw new Error(`a line is no message: ${line.slice(0, 200)}`);
      await this.#options.receive(message);
      if (socket.destroyed) return;
    }
  }
}
