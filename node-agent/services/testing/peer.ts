import { type ChildProcess, spawn } from 'node:child_process';
import { join } from 'node:path';

export interface Answer {
  /** Who answered: address and port. */
  readonly text?: string;
  /** The peer as the socket says it. */
  readonly peer?: string;
  /** Whom the answer came from, as the socket says it. */
  readonly from?: string;
  readonly error?: string;
}

export interface Ask {
  readonly kind: 'ask';
  readonly protocol: 'TCP' | 'UDP';
  readonly address: string;
  readonly port: number;
  /** UDP by a socket that is connected. */
  readonly connected?: boolean;
  /** Of the socket; default: the address's. */
  readonly family?: 4 | 6;
  /** A name under which the socket is kept and used again. */
  readonly keep?: string;
}

export type Command =
  | Ask
  | { readonly kind: 'serve'; readonly protocol: 'TCP' | 'UDP'; readonly address: string; readonly port: number };

/** A process in a network namespace (`path`) that serves and asks. */
export class Peer {
  readonly #process: ChildProcess;
  readonly #answers = new Map<number, { answer(value: Answer): void; fail(error: Error): void }>();
  #next = 1;

  constructor(path: string) {
    this.#process = spawn(
      'nsenter',
      [`--net=${path}`, process.execPath, join(import.meta.dirname, 'peer-process.ts')],
      { stdio: ['ignore', 'ignore', 'inherit', 'ipc'] },
    );
    this.#process.on('message', ({ id, answer }: { id: number; answer: Answer }) => {
      this.#answers.get(id)?.answer(answer);
      this.#answers.delete(id);
    });
    this.#process.on('exit', (code) => {
      // Null: it was ended.
      if (code !== null)
        for (const pending of this.#answers.values()) pending.fail(new Error(`a peer's process ended: ${code}`));
    });
  }

  ready(): Promise<Answer> {
    return new Promise((answer, fail) => this.#answers.set(0, { answer, fail }));
  }

  get pid(): number {
    if (this.#process.pid === undefined) throw new Error('the process did not start');
    return this.#process.pid;
  }

  async serve(protocol: 'TCP' | 'UDP', address: string, port: number): Promise<void> {
    const { error } = await this.#call({ kind: 'serve', protocol, address, port });
    if (error !== undefined) throw new Error(error);
  }

  ask(protocol: 'TCP' | 'UDP', address: string, port: number, more: Partial<Ask> = {}): Promise<Answer> {
    return this.#call({ kind: 'ask', protocol, address, port, ...more });
  }

  kill(): void {
    this.#process.kill('SIGKILL');
  }

  #call(command: Command): Promise<Answer> {
    const id = this.#next;
    this.#next += 1;
    return new Promise((answer, fail) => {
      this.#answers.set(id, { answer, fail });
      this.#process.send({ id, command });
    });
  }
}
