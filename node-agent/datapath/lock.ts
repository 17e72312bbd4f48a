import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:net';
import { dirname, join } from 'node:path';
import { codeOf } from '../config/system-error.ts';
import { AgentRunningError } from '../errors.ts';

/**
 * One agent a bpf root: an abstract unix socket named after the root. The kernel frees it with the process, however that
 * ends, so that there is no stale lock. Abstract sockets are of one network namespace: so is a node's agent.
 */
export class RootLock {
  readonly #root: string;
  readonly #pidFile: string;
  #server: Server | undefined;

  constructor(bpfRoot: string, stateDir: string) {
    this.#root = bpfRoot;
    this.#pidFile = join(stateDir, 'agent.pid');
  }

  /** @throws AgentRunningError when another process holds it */
  async acquire(): Promise<void> {
    const server = createServer((socket) => socket.destroy());
    // Held for as long as the process lives, without keeping it alive.
    server.unref();
    await new Promise<void>((resolve, reject) => {
      server.once('error', (error) => {
        const taken = codeOf(error) === 'EADDRINUSE';
        reject(taken ? new AgentRunningError(this.#root, this.#holder()) : error);
      });
      server.listen(`\0weir-agent:${this.#root}`, resolve);
    });
    this.#server = server;
    try {
      mkdirSync(dirname(this.#pidFile), { recursive: true, mode: 0o700 });
      writeFileSync(this.#pidFile, `${process.pid}\n`);
    } catch {
      // It only names the holder, for people; a folder that cannot be written is told by what belongs there.
    }
  }

  async release(): Promise<void> {
    const server = this.#server;
    this.#server = undefined;
    if (server) await new Promise<void>((resolve) => server.close(() => resolve()));
  }

  /** The pid that the holder wrote down; undefined when it uses another state folder. */
  #holder(): number | undefined {
    try {
      const pid = Number(readFileSync(this.#pidFile, 'utf8'));
      return Number.isInteger(pid) && pid > 0 ? pid : undefined;
    } catch {
      return undefined;
    }
  }
}
