/** Who can be asked to probe and is no pod: the outside, the control plane, nodes. Each is a program in its network namespace. */
import { join } from 'node:path';
import { netnsPath } from '../fabric.ts';
import { PodProcess } from '../pod/process.ts';
import type { Records } from './leftovers.ts';

export class Hosts {
  readonly #logDir: string;
  readonly #records: Records;
  readonly #processes = new Map<string, PodProcess>();

  constructor(logDir: string, records: Records) {
    this.#logDir = logDir;
    this.#records = records;
  }

  /** The program of a host, started when it does not run. */
  process(name: string, netns: string): PodProcess {
    const found = this.#processes.get(name);
    if (found?.program.running === true) return found;
    const made = new PodProcess(name, netnsPath(netns), join(this.#logDir, `host-${name}.log`));
    if (made.program.pid !== undefined) this.#records.set(`host ${name}`, made.program.pid);
    this.#processes.set(name, made);
    return made;
  }

  /** Ends a host's program: it would keep the host's network namespace. */
  async dismiss(name: string): Promise<void> {
    await this.#processes.get(name)?.stop();
    this.#processes.delete(name);
    this.#records.delete(`host ${name}`);
  }

  async stop(): Promise<void> {
    await Promise.all([...this.#processes.keys()].map((name) => this.dismiss(name)));
  }
}
