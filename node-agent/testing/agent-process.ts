/** An agent as a process, for tests. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';

export class AgentProcess {
  readonly child: ChildProcess;
  /** What it has said, on both streams. */
  output = '';
  readonly #closed: Promise<unknown>;

  /** @param netns path of its network namespace */
  constructor(netns: string, command: readonly string[]) {
    const child = spawn('nsenter', [`--net=${netns}`, ...command], { stdio: ['ignore', 'pipe', 'pipe'] });
    this.child = child;
    this.#closed = once(child, 'close');
    for (const stream of [child.stdout, child.stderr])
      stream.setEncoding('utf8').on('data', (chunk: string) => {
        this.output += chunk;
      });
  }

  /** Resolves once all parts run. */
  async running(): Promise<void> {
    while (!this.output.includes('agent is running')) {
      if (this.child.exitCode !== null || this.child.signalCode !== null)
        throw new Error(`the agent ended: ${this.output}`);
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }

  /** Its exit code, once it has ended and all that it said is in `output`. @param signal ends it, if it still runs */
  async ended(signal?: NodeJS.Signals): Promise<number | null> {
    const { child } = this;
    if (signal !== undefined) child.kill(signal);
    await this.#closed;
    return child.exitCode;
  }
}
