/**
 * Programs of the cluster as real processes in their network namespaces: started, watched, stopped or killed by the pid that
 * started them, never by name.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createWriteStream, openSync, type WriteStream } from 'node:fs';
import { join } from 'node:path';

export interface ProgramOptions {
  readonly name: string;
  /** Path of the network namespace to run in; the caller's own when absent. */
  readonly netns?: string;
  /** Folder of the cgroup to run in; the caller's own when absent. */
  readonly cgroup?: string;
  readonly command: string;
  readonly args: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  /** Standard output and error are appended here. */
  readonly logFile: string;
  /** With an IPC channel (`send`, `onMessage`). */
  readonly ipc?: boolean;
  /** It has ended, and neither `stop` nor `kill9` was called. */
  readonly onEnd?: (how: string) => void;
}

/** One run of a program. A program whose cluster dies is killed by the kernel (parent-death signal). */
export class Program {
  readonly name: string;
  readonly child: ChildProcess;
  readonly #log: WriteStream;
  #exited = false;
  #ending = false;
  #tail = '';

  constructor(options: ProgramOptions) {
    this.name = options.name;
    // Opened at once: its folder may be gone as soon as the program has ended.
    this.#log = createWriteStream(options.logFile, { fd: openSync(options.logFile, 'a') });
    const into =
      options.cgroup === undefined
        ? []
        : ['sh', '-c', 'echo $$ > "$0" && exec "$@"', join(options.cgroup, 'cgroup.procs')];
    const die = [...into, 'setpriv', '--pdeathsig', 'KILL', options.command, ...options.args];
    // nsenter and not `ip netns exec`: the latter mounts a new /sys and hides the pinned maps.
    const [command = '', ...args] = options.netns === undefined ? die : ['nsenter', `--net=${options.netns}`, ...die];
    this.child = spawn(command, args, {
      env: { ...process.env, ...options.env },
      // In a session of its own: ctrl-C at the terminal is the cluster's to handle, not the program's.
      detached: true,
      stdio: options.ipc === true ? ['ignore', 'pipe', 'pipe', 'ipc'] : ['ignore', 'pipe', 'pipe'],
    });
    for (const stream of [this.child.stdout, this.child.stderr]) {
      stream?.on('data', (chunk: Buffer) => {
        this.#log.write(chunk);
        this.#tail = (this.#tail + chunk.toString('utf8')).slice(-4000);
      });
    }
    this.child.on('error', (error) => {
      this.#exited = true;
      this.#tail += `\ncannot start ${command}: ${error.message}`;
    });
    this.child.on('exit', (code, signal) => {
      this.#exited = true;
      if (!this.#ending) options.onEnd?.(signal === null ? `exit code ${code}` : `${signal}`);
    });
    // What it printed last may come after its end.
    this.child.on('close', () => this.#log.end());
  }

  get pid(): number | undefined {
    return this.child.pid;
  }

  get running(): boolean {
    return !this.#exited;
  }

  /** The last 4 kB of what it printed. */
  get tail(): string {
    return this.#tail;
  }

  async exited(): Promise<void> {
    if (!this.#exited) await once(this.child, 'exit');
  }

  /** SIGTERM, and SIGKILL when it has not ended after `graceMs`. */
  async stop(graceMs = 30_000): Promise<void> {
    this.#ending = true;
    if (this.#exited) return;
    this.child.kill('SIGTERM');
    const timer = setTimeout(() => this.child.kill('SIGKILL'), graceMs);
    await this.exited();
    clearTimeout(timer);
  }

  /** It does nothing until `thaw`, and does not know: as on a machine that is short of everything. */
  freeze(): void {
    this.child.kill('SIGSTOP');
  }

  thaw(): void {
    this.child.kill('SIGCONT');
  }

  /** SIGKILL, as a crash. */
  async kill9(): Promise<void> {
    this.#ending = true;
    if (this.#exited) return;
    this.child.kill('SIGKILL');
    await this.exited();
  }
}
