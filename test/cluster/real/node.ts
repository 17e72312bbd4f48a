/** One node: a machine of its own as far as Kubernetes can tell, made of namespaces and cgroups; process 1 is node.sh. */
import { existsSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { type AgentReply, callAgent } from '../agent-api.ts';
import { netnsPath } from '../fabric.ts';
import { startTime } from '../owner.ts';
import { Program } from '../process.ts';
import { attempt, type Output, ROOT } from '../run.ts';
import type { TestNode } from '../types.ts';
import { addNode, type Hierarchy, remove as removeCgroups } from './cgroups.ts';
import type { Records } from './leftovers.ts';
import { nodeAddress, nodeAddress6, nodeName } from './names.ts';
import type { Network } from './network.ts';
import { type ProxyMode, writeNodeFiles } from './node-files.ts';
import type { Pki } from './pki.ts';

const SCRIPTS = join(ROOT, 'test/cluster/real');
/** The agent's socket inside a node. */
const AGENT_SOCKET = '/run/weir/weir.sock';
/** Of commands inside a node. */
const NODE_PATH = '/kube:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin';

export interface RealNodeOptions {
  readonly number: number;
  /** The cluster's. */
  readonly folder: string;
  readonly logDir: string;
  readonly bin: string;
  readonly pki: Pki;
  readonly network: Network;
  readonly hierarchies: readonly Hierarchy[];
  readonly records: Records;
  readonly proxy: ProxyMode | undefined;
}

export interface EnterOptions {
  readonly stdin?: string;
  readonly stdinFile?: string;
  readonly timeoutMs?: number;
}

/** A daemon of a node, by the name that node.sh keeps it under. */
export type NodeProgram = 'containerd' | 'kubelet' | 'kube-proxy';

export class RealNode implements TestNode {
  readonly number: number;
  readonly name: string;
  readonly address: string;
  /** One of each family, IPv4 first. */
  readonly addresses: readonly string[];
  /** Its disk, as this machine sees it: `etc`, `var`, `opt`, `tmp`. */
  readonly folder: string;
  readonly #options: RealNodeOptions;
  #outer: Program | undefined;
  #pid: number | undefined;
  #cgroups: readonly string[] = [];

  constructor(options: RealNodeOptions) {
    this.#options = options;
    this.number = options.number;
    this.name = nodeName(options.number);
    this.address = nodeAddress(options.number);
    this.addresses = [this.address, nodeAddress6(options.number)];
    this.folder = join(options.folder, this.name);
  }

  /** Name of its network namespace on this machine. */
  get netns(): string {
    return this.#options.network.netns(this.number);
  }

  /** Process 1 of the node, in this machine's numbers. */
  get pid(): number {
    if (this.#pid === undefined || this.#outer?.running !== true)
      throw new Error(`${this.name} does not run: ${this.#outer?.tail ?? 'it was never started'}`);
    return this.#pid;
  }

  get running(): boolean {
    return this.#outer?.running === true;
  }

  get socket(): string {
    return this.file(AGENT_SOCKET);
  }

  /** A path of the node, as this machine reaches it. */
  file(path: string): string {
    return `/proc/${this.pid}/root${path}`;
  }

  /** Its disk, before the first boot. */
  async install(): Promise<void> {
    const { number, pki, proxy } = this.#options;
    await pki.node(this.name, this.address);
    writeNodeFiles({ folder: this.folder, number, pki, proxy });
  }

  /** New namespaces and process 1; returns when containerd answers. */
  async boot(timeoutMs = 120_000): Promise<void> {
    const { bin, hierarchies, logDir, network, number, proxy, records } = this.#options;
    await network.addNode(number);
    this.#cgroups = addNode(hierarchies, this.name);
    const outer = new Program({
      name: this.name,
      command: '/bin/bash',
      args: [join(SCRIPTS, 'launch.sh'), netnsPath(this.netns), join(SCRIPTS, 'node.sh')],
      env: {
        NODE_CGROUPS: this.#cgroups.join(' '),
        NODE_NAME: this.name,
        NODE_FOLDER: this.folder,
        NODE_PROGRAMS: bin,
        NODE_HIERARCHIES: hierarchies.map(({ name }) => name).join(' '),
        NODE_PROXY: proxy === undefined ? '' : '1',
      },
      logFile: join(logDir, `${this.name}.log`),
    });
    this.#outer = outer;
    if (outer.pid !== undefined) records.set(`${this.name} (parent of process 1)`, outer.pid);
    const end = Date.now() + timeoutMs;
    for (;;) {
      this.#pid ??= child(outer.pid);
      if (!outer.running) throw new Error(`${this.name} ended while it started: ${outer.tail}`);
      // Before it has moved into its own root, a node shows the machine's.
      if (this.#pid !== undefined && existsSync(this.file('/run/keep/containerd.pid'))) {
        if (existsSync(this.file('/run/containerd/containerd.sock'))) break;
      }
      if (Date.now() > end)
        throw new Error(`containerd of ${this.name} did not start within ${timeoutMs} ms: ${this.log('containerd')}`);
      await sleep(20);
    }
    records.set(this.name, this.pid);
    // The socket is there a moment before somebody answers.
    for (;;) {
      const { code } = await this.enter(['ctr', 'version']);
      if (code === 0) return;
      if (Date.now() > end)
        throw new Error(`containerd of ${this.name} does not answer within ${timeoutMs} ms: ${this.log('containerd')}`);
      await sleep(100);
    }
  }

  /** Ends everything in it at once, as when the power fails, and takes its namespaces and cgroups away. Its disk stays. */
  async halt(): Promise<void> {
    const { network, number, records } = this.#options;
    const pid = this.#pid;
    await this.#outer?.kill9();
    if (pid !== undefined) await gone(pid);
    this.#pid = undefined;
    records.delete(this.name);
    records.delete(`${this.name} (parent of process 1)`);
    await network.removeNode(number);
    await removeCgroups(this.#cgroups);
    this.#cgroups = [];
  }

  /** Its disk too. */
  erase(): void {
    rmSync(this.folder, { recursive: true, force: true });
  }

  /** Runs a command in all of the node's namespaces, whatever its exit code. */
  enter(command: readonly string[], options: EnterOptions = {}): Promise<Output> {
    const into = ['-t', String(this.pid), '-m', '-u', '-i', '-n', '-p', '-C', '--'];
    return attempt('nsenter', [...into, 'env', `PATH=${NODE_PATH}`, ...command], options);
  }

  /** Puts the images of a tar file on the node. */
  async importImage(file: string): Promise<void> {
    const into = { stdinFile: file, timeoutMs: 180_000 };
    const output = await this.enter(['ctr', '-n', 'k8s.io', 'images', 'import', '-'], into);
    if (output.code !== 0) throw new Error(`${this.name} cannot import ${file}: ${output.stderr.trim()}`);
  }

  /** Ends a daemon; process 1 starts it again after a second. Returns when the new one runs. */
  async restart(program: NodeProgram, timeoutMs = 30_000): Promise<void> {
    const file = this.file(`/run/keep/${program}.pid`);
    const old = readFileSync(file, 'utf8').trim();
    const killed = await this.enter(['kill', old]);
    if (killed.code !== 0) throw new Error(`${program} of ${this.name} (process ${old}): ${killed.stderr.trim()}`);
    const end = Date.now() + timeoutMs;
    while (readFileSync(file, 'utf8').trim() === old) {
      if (Date.now() > end) throw new Error(`${program} of ${this.name} was not back within ${timeoutMs} ms`);
      await sleep(50);
    }
  }

  /** The end of a daemon's log. */
  log(program: NodeProgram, characters = 4000): string {
    const file = join(this.folder, 'var/log', `${program}.log`);
    return existsSync(file) ? readFileSync(file, 'utf8').slice(-characters) : `(no ${file})`;
  }

  weir(args: readonly string[], stdin?: string): Promise<Output> {
    return attempt(join(ROOT, 'bin/weir'), args, {
      env: { WEIR_SOCKET: this.socket },
      ...(stdin === undefined ? {} : { stdin }),
    });
  }

  call(method: string, path: string, body?: unknown): Promise<AgentReply> {
    return callAgent(this, method, path, body);
  }
}

/** The only child of a process. */
function child(parent: number | undefined): number | undefined {
  if (parent === undefined) return undefined;
  const file = `/proc/${parent}/task/${parent}/children`;
  const pid = existsSync(file) ? readFileSync(file, 'utf8').trim().split(' ')[0] : undefined;
  if (pid === undefined || pid === '') return undefined;
  // Before it is process 1, launch.sh may have children of its own; the node's init is in another PID namespace.
  const numbers = /^NSpid:\s+(.*)$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]?.split(/\s+/) ?? [];
  return numbers.length > 1 && numbers.at(-1) === '1' ? Number(pid) : undefined;
}

async function gone(pid: number): Promise<void> {
  const end = Date.now() + 60_000;
  // Process 1 ends last, when all others of its PID namespace have.
  while (startTime(pid) !== undefined) {
    if (Date.now() > end) throw new Error(`process ${pid} does not end`);
    await sleep(10);
  }
}
