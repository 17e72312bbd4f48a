import { chmod, link, lstat, mkdir, rename, rm, unlink } from 'node:fs/promises';
import { createServer, type Server, type Socket } from 'node:net';
import { dirname, join } from 'node:path';
import { delay } from '@weir/process/delay';
import { codeOf, messageOf } from '@weir/process/errors';
import { makeFolder } from '@weir/process/folders';
import type { Logger } from '../core.ts';
import type { Condition } from '../parts/contract.ts';
import { answers, removeWorthless, SOCKET_FOLDER_MODE } from './socket.ts';

const WATCH_MS = 2000;
/** How often connections that a stop waits for are looked at. */
const LINGER_MS = 20;

export interface SocketGuardOptions {
  readonly path: string;
  readonly log: Logger;
  /** Listens for the first time. */
  readonly listen: (path: string) => Promise<Server>;
  /** Takes a connection of a socket that was made later. */
  readonly accept: (socket: Socket) => void;
  /** Ends connections on which no request is under way. */
  readonly closeIdle: () => void;
  /** How often the path is looked at, in milliseconds. Default 2000. */
  readonly intervalMs?: number;
}

/**
 * Keeps the agent reachable at its path: a socket file that somebody removed is made again. It is made in a folder that is root's alone, and gets its
 * path with its mode set and only where nothing is: whoever finds it is answered, nobody else connects before, whatever the umask, and nothing
 * is overwritten. What is no socket is moved aside: the path was the agent's, and nothing is lost. The socket of another live process is
 * left alone.
 */
export class SocketGuard {
  readonly #options: SocketGuardOptions;
  readonly #stop = new AbortController();
  /** Handles: listeners that were made later, the last of which is in place. */
  readonly #later: Server[] = [];
  /** What is in place: device and inode. */
  #mine = '';
  #problem: string | undefined;
  #watching: Promise<void> = Promise.resolve();

  constructor(options: SocketGuardOptions) {
    this.#options = options;
  }

  async start(): Promise<void> {
    await this.#place(this.#options.listen);
    this.#watching = this.#watch();
  }

  status(): Condition {
    const { path } = this.#options;
    return { ok: this.#problem === undefined, message: this.#problem ?? `listening on ${path}` };
  }

  /** No connection comes any more. The path is freed unless it is another's. */
  async close(): Promise<void> {
    this.#stop.abort();
    await this.#watching;
    const mine = this.#mine;
    // What somebody makes there from now on may get its number.
    this.#mine = '';
    if ((await inode(this.#options.path)) === mine) await unlink(this.#options.path);
  }

  /** Resolves when the connections of sockets that were made later have ended; after `close`. */
  async drained(): Promise<void> {
    const left = new Set(this.#later.splice(0));
    for (const server of left) server.close(() => left.delete(server));
    while (left.size > 0) {
      this.#options.closeIdle();
      await delay(LINGER_MS);
    }
  }

  async #watch(): Promise<void> {
    const { signal } = this.#stop;
    while (!signal.aborted) {
      await delay(this.#options.intervalMs ?? WATCH_MS, signal, { ref: false });
      if (signal.aborted) return;
      try {
        await this.#look();
      } catch (error) {
        // Something was put there since it was looked at: that has the next look.
        if (codeOf(error) !== 'EEXIST') this.#say(`it cannot be created again: ${messageOf(error)}`);
      }
    }
  }

  async #look(): Promise<void> {
    const { path, log } = this.#options;
    const found = await inode(path);
    if (found === this.#mine) {
      this.#problem = undefined;
      return;
    }
    if (found !== undefined) {
      const stats = await lstat(path);
      const worthless = await removeWorthless(path, stats);
      // A link may lead to one.
      if (!worthless && (stats.isSocket() || stats.isSymbolicLink()) && (await answers(path)))
        return this.#say('another process listens in its place: only one agent may run on a node');
      if (!worthless && !stats.isSocket() && !(await this.#moveAside()))
        return this.#say(`something that is no socket is in its place: remove that, and ${this.#aside}`);
      // A socket on which nobody listens.
      if (stats.isSocket()) await unlink(path);
    }
    log.warn({ socket: path }, "the agent's socket was removed; creating it again");
    this.#problem = `the socket ${path} was removed and is being created again`;
    await this.#place((at) => this.#listenAgain(at));
    this.#problem = undefined;
  }

  get #aside(): string {
    return `${this.#options.path}.aside`;
  }

  /** False: what was moved before is still there. */
  async #moveAside(): Promise<boolean> {
    const { path, log } = this.#options;
    if ((await inode(this.#aside)) !== undefined) return false;
    await rename(path, this.#aside);
    log.warn({ socket: path, aside: this.#aside }, 'moved aside what was in the place of the socket');
    return true;
  }

  /** A problem that is logged once. */
  #say(problem: string): void {
    const { path, log } = this.#options;
    const text = `the socket ${path} does not exist, so no pod can start: ${problem}`;
    if (text !== this.#problem) log.error({ socket: path, error: problem }, "the agent's socket does not exist");
    this.#problem = text;
  }

  async #place(listen: (path: string) => Promise<Server>): Promise<void> {
    const { path, log } = this.#options;
    await makeFolder(dirname(path), SOCKET_FOLDER_MODE);
    // No longer than the socket's own name, as paths of sockets have a limit.
    const closed = join(dirname(path), `.${process.pid.toString(36)}`);
    const made = join(closed, 's');
    await rm(closed, { recursive: true, force: true });
    await mkdir(closed, { mode: 0o700 });
    // The one before is not in place any more, and its number may be another file's as soon as nobody listens on it.
    this.#mine = '';
    const server = await listen(made);
    // Without a listener it would end the agent.
    server.on('error', (error) => log.error({ socket: path, err: error }, 'accepting a connection failed'));
    await chmod(made, 0o660);
    const mine = (await inode(made)) ?? '';
    try {
      await link(made, path);
      this.#mine = mine;
    } finally {
      await rm(closed, { recursive: true, force: true });
    }
  }

  async #listenAgain(at: string): Promise<Server> {
    // Connections of the one before go on. It frees the name that it was made under, which is wanted now.
    for (const before of this.#later) before.close();
    const server = createServer((socket) => this.#options.accept(socket));
    await new Promise<void>((resolve, reject) => {
      server.once('error', reject);
      server.listen(at, () => resolve());
    });
    this.#later.push(server);
    return server;
  }
}

async function inode(path: string): Promise<string | undefined> {
  try {
    const { dev, ino } = await lstat(path);
    return `${dev}:${ino}`;
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return undefined;
    throw error;
  }
}
