/** A node and its pods as network namespaces, for tests on the real kernel. */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { CoreOptions, Logger } from '../../core.ts';
import type { EndpointRow } from '../../tables.ts';

export const silent: Logger = {
  info: () => undefined,
  warn: () => undefined,
  error: () => undefined,
  debug: () => undefined,
};

let labs = 0;

function ip(...args: string[]): string {
  return execFileSync('ip', args, { stdio: ['ignore', 'pipe', 'pipe'] }).toString();
}

export class LabPod {
  readonly name: string;
  readonly address: string;
  readonly ifindex: number;
  readonly interfaceName: string;
  readonly #process: ChildProcess;
  readonly #answers = new Map<number, (answer: unknown) => void>();
  #next = 1;

  constructor(name: string, address: string, ifindex: number, interfaceName: string, namespace: string) {
    this.name = name;
    this.address = address;
    this.ifindex = ifindex;
    this.interfaceName = interfaceName;
    const script = join(import.meta.dirname, 'pod-process.ts');
    this.#process = spawn('nsenter', [`--net=/var/run/netns/${namespace}`, process.execPath, script], {
      stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
    });
    this.#process.on('message', (message: { id: number; answer: unknown }) => {
      this.#answers.get(message.id)?.(message.answer);
      this.#answers.delete(message.id);
    });
  }

  ready(): Promise<unknown> {
    return new Promise((resolve) => this.#answers.set(0, resolve));
  }

  /** Whether a datagram of a new flow is answered. */
  async reaches(other: LabPod): Promise<boolean> {
    return (await this.#call({ kind: 'ask', address: other.address, waitMs: 250 })) === true;
  }

  async startStream(other: LabPod): Promise<void> {
    await this.#call({ kind: 'stream', address: other.address, everyMs: 2 });
  }

  async endStream(): Promise<{ sent: number; lost: number }> {
    return (await this.#call({ kind: 'end' })) as { sent: number; lost: number };
  }

  endpoint(id: number, labels: Readonly<Record<string, string>>): EndpointRow {
    return {
      id,
      ifindex: this.ifindex,
      interfaceName: this.interfaceName,
      ipv4: this.address,
      labels: { 'k8s:io.kubernetes.pod.namespace': 'default', ...labels },
      createdAt: '2026-01-01T00:00:00Z',
    };
  }

  kill(): void {
    this.#process.kill('SIGKILL');
  }

  #call(command: object): Promise<unknown> {
    const id = this.#next;
    this.#next += 1;
    return new Promise((resolve) => {
      this.#answers.set(id, resolve);
      this.#process.send({ id, ...command });
    });
  }
}

export class Lab {
  readonly prefix: string;
  readonly node: string;
  readonly root: string;
  readonly state: string;
  readonly #pods: LabPod[] = [];
  readonly #namespaces: string[] = [];

  constructor() {
    labs += 1;
    this.prefix = `wt${process.pid}-l${labs}`;
    this.node = `${this.prefix}n`;
    this.root = `/sys/fs/bpf/${this.prefix}`;
    this.state = mkdtempSync(join(tmpdir(), 'weir-core-'));
    this.#add(this.node);
    execFileSync('nsenter', [`--net=${this.netns}`, 'sysctl', '-qw', 'net.ipv4.ip_forward=1']);
  }

  get netns(): string {
    return `/var/run/netns/${this.node}`;
  }

  async pod(name: string): Promise<LabPod> {
    const number = this.#pods.length + 1;
    const namespace = `${this.prefix}${name}`;
    this.#add(namespace);
    const host = `v${name}`;
    ip('-n', this.node, 'link', 'add', host, 'type', 'veth', 'peer', 'name', 'eth0', 'netns', namespace);
    ip('-n', this.node, 'addr', 'add', `10.88.${number}.1/24`, 'dev', host);
    ip('-n', this.node, 'link', 'set', host, 'up');
    ip('-n', namespace, 'addr', 'add', `10.88.${number}.2/24`, 'dev', 'eth0');
    ip('-n', namespace, 'link', 'set', 'eth0', 'up');
    ip('-n', namespace, 'route', 'add', 'default', 'via', `10.88.${number}.1`);
    const ifindex = Number(ip('-n', this.node, '-o', 'link', 'show', host).split(':')[0]);
    const pod = new LabPod(name, `10.88.${number}.2`, ifindex, host, namespace);
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
      ctEntries: 4096,
      nodeNetns: this.netns,
      log: silent,
      ...more,
    };
  }

  /** Removes an interface as the kernel does when a pod's namespace ends. */
  unplug(pod: LabPod): void {
    ip('-n', this.node, 'link', 'del', pod.interfaceName);
  }

  close(): void {
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
