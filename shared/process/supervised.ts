/**
 * Child processes and worker threads of a part: started, started again when they end, and stopped.
 *
 * Guarantees: whatever way one ends, another follows, after 0.1 s at first and up to 30 s when they keep ending; one that has lived for a minute counts
 * as well. After `stop` none runs, and none follows: a process that does not end by itself within two seconds is killed.
 */
import { spawn } from 'node:child_process';
import { Worker } from 'node:worker_threads';
import { delay } from './delay.ts';
import { messageOf } from './errors.ts';

const FIRST_WAIT_MS = 100;
const LONGEST_WAIT_MS = 30_000;
const WELL_AFTER_MS = 60_000;
const STOP_WITHIN_MS = 2_000;

/** Something that runs beside the main thread. */
export interface Running {
  /** Resolves when it has ended, with how: `exit code 3`. Never rejects. */
  readonly ended: Promise<string>;
  /** Asks it to end. */
  stop(): void;
  /** Ends it. */
  kill(): void;
}

/** How to start one. */
export type Start = () => Running;

export interface ChildOptions {
  readonly command: string;
  readonly args?: readonly string[];
  /** Beside this process's own. */
  readonly env?: Readonly<Record<string, string>>;
  /** Each line that it writes to standard error. Its standard output is this process's. */
  readonly onLine?: (line: string) => void;
}

/** A child process, which SIGTERM asks to end. */
export function child({ command, args = [], env = {}, onLine }: ChildOptions): Start {
  return () => {
    const { promise, resolve } = Promise.withResolvers<string>();
    const started = spawn(command, args, { env: { ...process.env, ...env }, stdio: ['ignore', 'inherit', 'pipe'] });
    // Without a process there is no standard error, and nothing else tells that it has ended.
    started.on('error', (error) => {
      if (started.pid === undefined) resolve(messageOf(error));
    });
    const lines = new Lines(onLine ?? (() => undefined));
    started.stderr?.setEncoding('utf8').on('data', (text: string) => lines.add(text));
    started.stderr?.once('close', () => lines.end());
    started.once('exit', (code, signal) => resolve(code === null ? `signal ${signal}` : `exit code ${code}`));
    return { ended: promise, stop: () => void started.kill('SIGTERM'), kill: () => void started.kill('SIGKILL') };
  };
}

/** The longest line that is told whole, in characters. */
const LONGEST_LINE = 4096;

/** Text in pieces to lines. */
class Lines {
  readonly #onLine: (line: string) => void;
  #rest = '';

  constructor(onLine: (line: string) => void) {
    this.#onLine = onLine;
  }

  add(text: string): void {
    const lines = `${this.#rest}${text}`.split('\n');
    this.#rest = lines.pop() ?? '';
    for (const line of lines) this.#onLine(line);
    if (this.#rest.length > LONGEST_LINE) this.end();
  }

  /** What has no end yet is a line. */
  end(): void {
    if (this.#rest !== '') this.#onLine(this.#rest);
    this.#rest = '';
  }
}

export interface WorkerOptions {
  /** Its module. */
  readonly module: URL;
  /** What it finds as `workerData`. */
  readonly data?: unknown;
  /** Called with each worker that starts: to give it work, and to listen to it. */
  readonly onStart?: (worker: Worker) => void;
}

/** A worker thread, which message `stop` asks to end. */
export function worker({ module, data, onStart }: WorkerOptions): Start {
  return () => {
    const { promise, resolve } = Promise.withResolvers<string>();
    const started = new Worker(module, { workerData: data });
    let thrown: string | undefined;
    started.on('error', (error) => {
      thrown = messageOf(error);
    });
    started.once('exit', (code) => resolve(thrown ?? `exit code ${code}`));
    try {
      onStart?.(started);
    } catch (error) {
      thrown = messageOf(error);
      void started.terminate();
    }
    return { ended: promise, stop: () => started.postMessage('stop'), kill: () => void started.terminate() };
  };
}

export interface SupervisedOptions {
  readonly start: Start;
  /** It ended by itself, and is started again in so many milliseconds. */
  readonly onEnd?: (how: string, againInMs: number) => void;
}

/** One that is kept running. */
export class Supervised {
  readonly #options: SupervisedOptions;
  readonly #stop = new AbortController();
  #running: Running | undefined;
  #loop: Promise<void> | undefined;
  #restarts = 0;
  #last: string | undefined;

  constructor(options: SupervisedOptions) {
    this.#options = options;
  }

  /** How often it was started again. */
  get restarts(): number {
    return this.#restarts;
  }

  /** Why it does not run; undefined while it does. */
  get problem(): string | undefined {
    if (this.#running !== undefined) return undefined;
    return this.#last === undefined ? 'it is not started yet' : `it ended (${this.#last}) and is started again soon`;
  }

  start(): void {
    this.#loop ??= this.#run();
  }

  async stop(): Promise<void> {
    this.#stop.abort();
    const running = this.#running;
    running?.stop();
    const killing = delay(STOP_WITHIN_MS, undefined, { ref: false }).then(() => running?.kill());
    await Promise.race([this.#loop, killing.then(() => this.#loop)]);
  }

  async #run(): Promise<void> {
    const { signal } = this.#stop;
    let waitMs = FIRST_WAIT_MS;
    while (!signal.aborted) {
      const began = performance.now();
      this.#last = await this.#once();
      if (signal.aborted) return;
      if (performance.now() - began >= WELL_AFTER_MS) waitMs = FIRST_WAIT_MS;
      this.#restarts += 1;
      this.#options.onEnd?.(this.#last, waitMs);
      await delay(waitMs, signal);
      waitMs = Math.min(2 * waitMs, LONGEST_WAIT_MS);
    }
  }

  async #once(): Promise<string> {
    try {
      this.#running = this.#options.start();
      return await this.#running.ended;
    } catch (error) {
      return messageOf(error);
    } finally {
      this.#running = undefined;
    }
  }
}
