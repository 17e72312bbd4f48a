/** A node and its pods as network namespaces, for tests on the real kernel. */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { DROP_REASONS, metricsKey, sumMetrics } from '@weir/bpf';
import { type BpfMap, openPinnedMap } from 'libbpf-ts';
import type { Core, CoreOptions, Logger } from '../../core.ts';
import { tableKey } from '../../create-tables.ts';
import { mountedCgroup } from '../../host/cgroup.ts';
import type { EndpointRow, KernelEndpoint } from '../../tables.ts';

export const silent: Logger = {
  info: () => undefined,
  warn: () => undefined,
  error: () => undefined,
  debug: () => undefined,
};

let labs = 0;

/** No answer and no drop after this long is a fault of the test's world, in milliseconds. */
const PATIENCE_MS = 60_000;

/** The endpoint as the core found it in the kernel, until it is another there. */
export function foundBy({ db, tables }: Core, endpoint: number): KernelEndpoint | undefined {
  using snapshot = db.read();
  return snapshot.get(tables.kernelEndpoints, tableKey.endpoint(endpoint))?.found;
}

/** Packets that the datapath pinned under `root` has dropped; 0 while nothing is pinned there. */
export function dropsOf(root: string): bigint {
  const path = join(root, 'metrics');
  if (!existsSync(path)) return 0n;
  using map = openPinnedMap(path);
  return dropsIn(map);
}

/** Packets that are counted as dropped in a datapath's map of metrics. */
export function dropsIn(map: BpfMap): bigint {
  let drops = 0n;
  for (const { number, name, drop } of DROP_REASONS.values()) {
    // Pods ask for IPv6 routers and multicast groups by themselves.
    if (!drop || name === 'invalid-source' || name === 'neighbour-discovery') continue;
    for (const direction of [0, 1]) {
      const value = map.lookup(metricsKey.encode({ reason: number, direction }));
      if (value !== undefined) drops += sumMetrics(value).packets;
    }
  }
  return drops;
}

function hex(byte: number): string {
  return byte.toString(16).padStart(2, '0');
}

function ip(...args: string[]): string {
  return execFileSync('ip', args, { stdio: ['ignore', 'pipe', 'pipe'] }).toString();
}

export interface LabPodOptions {
  readonly name: string;
  /** Of IPv4. */
  readonly address: string;
  /** Of IPv6. Default: none. */
  readonly address6?: string;
  readonly ifindex: number;
  /** On the node. */
  readonly interfaceName: string;
  /** That its process runs in. */
  readonly namespace: string;
  /** Packets that the node's datapath has dropped until now. */
  readonly drops: () => bigint;
}

export class LabPod {
  readonly name: string;
  readonly address: string;
  readonly address6: string;
  readonly ifindex: number;
  readonly interfaceName: string;
  readonly #process: ChildProcess;
  readonly #drops: () => bigint;
  #streamsTo: LabPod | undefined;
  readonly #answers = new Map<number, { answer(value: unknown): void; fail(error: Error): void }>();
  #next = 1;

  constructor({ name, address, address6 = '', ifindex, interfaceName, namespace, drops }: LabPodOptions) {
    this.#drops = drops;
    this.name = name;
    this.address = address;
    this.address6 = address6;
    this.ifindex = ifindex;
    this.interfaceName = interfaceName;
    const script = join(import.meta.dirname, 'pod-process.ts');
    this.#process = spawn('nsenter', [`--net=/var/run/netns/${namespace}`, process.execPath, script], {
      stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
    });
    this.#process.on('message', (message: { id: number; answer: unknown }) => {
      this.#answers.get(message.id)?.answer(message.answer);
      this.#answers.delete(message.id);
    });
    this.#process.on('exit', (code) => {
      // Null: it was ended.
      if (code !== null)
        for (const pending of this.#answers.values()) pending.fail(new Error(`${name}'s process ended: ${code}`));
    });
  }

  ready(): Promise<unknown> {
    return new Promise((answer, fail) => this.#answers.set(0, { answer, fail }));
  }

  /**
   * Whether a datagram of a new flow is answered: waits until it is, or until the datapath has dropped a packet and both ends have read
   * all that arrived. Throws when neither happens. `drops` says what was dropped where nothing is pinned; `address` is the other's, for this one.
   */
  async reaches(other: LabPod, drops: () => bigint = this.#drops, address: string = other.address): Promise<boolean> {
    const before = drops();
    const question = await this.#call({ kind: 'ask', address });
    const end = Date.now() + PATIENCE_MS;
    // The drop that was counted may be somebody else's: what is on its way gets the time of a few turns at both ends.
    for (let dropped = 0; dropped < 3; ) {
      if (drops() !== before) dropped += 1;
      await other.#call({ kind: 'sync' });
      if ((await this.#call({ kind: 'answered', question })) === true) {
        await this.#call({ kind: 'forget', question });
        return true;
      }
      if (Date.now() > end) throw new Error(`${this.name} to ${other.name}: neither answered nor dropped`);
      await sleep(1);
    }
    await this.#call({ kind: 'forget', question });
    return false;
  }

  /** What comes of one datagram of a connected socket. `patienceMs`: silent after so long; a short one where no answer is to come. */
  async talk(
    address: string,
    port: number,
    { bytes = 4, patienceMs = PATIENCE_MS } = {},
  ): Promise<'answered' | 'refused' | 'silent'> {
    return (await this.#call({ kind: 'talk', address, port, bytes, patienceMs })) as 'answered' | 'refused' | 'silent';
  }

  /** Opens a TCP connection, the one that `say` then uses at both ends; false when it is refused. */
  async dial(other: LabPod, address: string = other.address): Promise<boolean> {
    return (await this.#call({ kind: 'dial', address })) === true;
  }

  /** Gives the kernel one byte for the connection with the other. */
  async say(other: LabPod, address: string = other.address): Promise<void> {
    if ((await this.#call({ kind: 'say', to: address })) !== true)
      throw new Error(`${this.name} has no connection with ${other.name}`);
  }

  /** Bytes that have come by TCP until now. */
  async heard(): Promise<number> {
    return (await this.#call({ kind: 'heard' })) as number;
  }

  /** A datagram of a conversation that the other answers only when told so (`answer`). */
  async write(other: LabPod, address: string = other.address): Promise<void> {
    await this.#call({ kind: 'write', address });
  }

  /** Answers the last letter. */
  async answer(): Promise<void> {
    await this.#call({ kind: 'answer' });
  }

  /** Letters and answers that have come until now. */
  async letters(): Promise<number> {
    return (await this.#call({ kind: 'letters' })) as number;
  }

  async startStream(other: LabPod, address: string = other.address): Promise<void> {
    this.#streamsTo = other;
    await this.#call({ kind: 'stream', address, everyMs: 2 });
  }

  /** Ends the stream, once each datagram is answered or nothing has changed for a few turns at both ends. */
  async endStream(): Promise<{ sent: number; lost: number }> {
    let report = (await this.#call({ kind: 'report' })) as { sent: number; lost: number };
    for (let unchanged = 0; report.lost > 0 && unchanged < 5; ) {
      if (this.#streamsTo !== undefined) await this.#streamsTo.#call({ kind: 'sync' });
      await sleep(5);
      const { lost } = report;
      report = (await this.#call({ kind: 'report' })) as { sent: number; lost: number };
      unchanged = report.lost === lost ? unchanged + 1 : 0;
    }
    await this.#call({ kind: 'end' });
    return report;
  }

  endpoint(id: number, labels: Readonly<Record<string, string>>): EndpointRow {
    return {
      id,
      ifindex: this.ifindex,
      interfaceName: this.interfaceName,
      addresses: this.address6 === '' ? [this.address] : [this.address, this.address6],
      labels: { 'k8s:io.kubernetes.pod.namespace': 'default', ...labels },
      createdAt: '2026-01-01T00:00:00Z',
    };
  }

  get pid(): number {
    if (this.#process.pid === undefined) throw new Error(`${this.name} has no process`);
    return this.#process.pid;
  }

  kill(): void {
    this.#process.kill('SIGKILL');
  }

  #call(command: object): Promise<unknown> {
    const id = this.#next;
    this.#next += 1;
    return new Promise((answer, fail) => {
      this.#answers.set(id, { answer, fail });
      this.#process.send({ id, ...command });
    });
  }
}

export class Lab {
  readonly prefix: string;
  readonly node: string;
  readonly root: string;
  readonly state: string;
  #cgroup: { readonly root: string; readonly folder: string } | undefined;
  readonly #pods: LabPod[] = [];
  readonly #namespaces: string[] = [];

  constructor() {
    labs += 1;
    this.prefix = `wt${process.pid}-l${labs}`;
    this.node = `${this.prefix}n`;
    this.root = `/sys/fs/bpf/${this.prefix}`;
    this.state = mkdtempSync(join(tmpdir(), 'weir-core-'));
    this.#add(this.node);
    execFileSync('nsenter', [
      `--net=${this.netns}`,
      'sysctl',
      '-qw',
      'net.ipv4.ip_forward=1',
      'net.ipv6.conf.all.forwarding=1',
    ]);
  }

  get netns(): string {
    return `/var/run/netns/${this.node}`;
  }

  async pod(name: string): Promise<LabPod> {
    const number = this.#pods.length + 1;
    const namespace = `${this.prefix}${name}`;
    this.#add(namespace);
    const host = `v${name}`;
    const [gateway, address, address6] = [`10.88.${number}.1`, `10.88.${number}.2`, `fd88::${number}:2`];
    const [here, there] = [`02:88:00:00:${hex(number)}:01`, `02:88:00:00:${hex(number)}:02`];
    ip(
      '-n',
      this.node,
      'link',
      'add',
      host,
      'address',
      here,
      'type',
      'veth',
      'peer',
      'name',
      'eth0',
      'netns',
      namespace,
    );
    ip('-n', namespace, 'link', 'set', 'eth0', 'address', there, 'addrgenmode', 'none');
    ip('-n', this.node, 'link', 'set', host, 'addrgenmode', 'none');
    ip('-n', this.node, 'addr', 'add', `${gateway}/24`, 'dev', host);
    ip('-n', this.node, 'link', 'set', host, 'up');
    ip('-n', namespace, 'addr', 'add', `${address}/24`, 'dev', 'eth0');
    ip('-n', namespace, 'addr', 'add', `${address6}/128`, 'dev', 'eth0', 'nodad');
    ip('-n', namespace, 'link', 'set', 'eth0', 'up');
    ip('-n', namespace, 'route', 'add', 'default', 'via', gateway);
    // Nobody owns fe80::1: neighbours that the kernel never asks for take its place, at both ends.
    ip('-n', namespace, 'neigh', 'add', 'fe80::1', 'lladdr', here, 'dev', 'eth0', 'nud', 'permanent');
    ip('-n', namespace, '-6', 'route', 'add', 'default', 'via', 'fe80::1', 'dev', 'eth0', 'onlink');
    ip('-n', this.node, 'neigh', 'add', address6, 'lladdr', there, 'dev', host, 'nud', 'permanent');
    ip('-n', this.node, '-6', 'route', 'add', `${address6}/128`, 'dev', host);
    const ifindex = Number(ip('-n', this.node, '-o', 'link', 'show', host).split(':')[0]);
    const drops = (): bigint => dropsOf(this.root);
    const pod = new LabPod({ name, address, address6, ifindex, interfaceName: host, namespace, drops });
    this.#pods.push(pod);
    await pod.ready();
    return pod;
  }

  options(more: Partial<CoreOptions> = {}): CoreOptions {
    return {
      nodeName: 'lab',
      clusterName: 'default',
      bpfRoot: this.root,
      stateDir: this.state,
      policyMode: 'default',
      allowLocalhost: true,
      kubernetes: false,
      nodeNetns: this.netns,
      log: silent,
      ...more,
      kernel: { ctEntries: 4096, ...more.kernel },
    };
  }

  /** A cgroup that only these pods' processes are in: its folder. */
  cgroup(...pods: readonly { readonly pid: number }[]): string {
    const root = mountedCgroup();
    if (root === undefined) throw new Error('no cgroup of version 2 is mounted: mount -t cgroup2 none /sys/fs/cgroup');
    this.#cgroup ??= { root, folder: join(root, this.prefix) };
    mkdirSync(this.#cgroup.folder, { recursive: true });
    for (const { pid } of pods) writeFileSync(join(this.#cgroup.folder, 'cgroup.procs'), String(pid));
    return this.#cgroup.folder;
  }

  #leaveCgroup(): void {
    if (this.#cgroup === undefined) return;
    const { root, folder } = this.#cgroup;
    for (const pid of readFileSync(join(folder, 'cgroup.procs'), 'utf8').split('\n'))
      if (pid !== '') writeFileSync(join(root, 'cgroup.procs'), pid);
    rmdirSync(folder);
  }

  /** Removes an interface as the kernel does when a pod's namespace ends. */
  unplug(pod: LabPod): void {
    ip('-n', this.node, 'link', 'del', pod.interfaceName);
  }

  close(): void {
    this.#leaveCgroup();
    for (const pod of this.#pods) pod.kill();
    for (const namespace of this.#namespaces) ip('netns', 'del', namespace);
    rmSync(this.root, { recursive: true, force: true });
    rmSync(this.state, { recursive: true, force: true });
  }

  #add(namespace: string): void {
    ip('netns', 'add', namespace);
    this.#namespaces.push(namespace);
    ip('-n', namespace, 'link', 'set', 'lo', 'up');
  }
}
