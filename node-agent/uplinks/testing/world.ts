/** A node with two pods and a machine outside of the cluster, which knows no route to pods. The node masquerades, and has Services. */
import { execFileSync, spawn } from 'node:child_process';
import { DROP_REASONS, metricsKey, sumMetrics } from '@weir/bpf';
import { Peer } from '@weir/bpf/testing';
import type { BpfMap } from 'libbpf-ts';
import { eventually } from '../../../test/eventually.ts';
import { createCore } from '../../core/create-core.ts';
import type { Core } from '../../core.ts';
import { Datapath } from '../../datapath/index.ts';
import { Lab, type LabPod, silent } from '../../datapath/testing/lab.ts';
import { MASQUERADE_MAPS } from '../../masquerade/maps.ts';
import { Masquerade } from '../../masquerade/masquerade.ts';
import { hooksAt, SOURCE as MASQUERADE } from '../../masquerade/programs.ts';
import { SERVICE_MAPS } from '../../services/maps.ts';
import { UPLINK_SOURCE, uplinkHooks } from '../../services/programs.ts';
import { Services } from '../../services/services.ts';
import { UPLINK_MAPS } from '../maps.ts';
import { Uplinks } from '../uplinks.ts';
import { listener, TALKER, WATCHER } from './talk.ts';

export const NODE = '198.51.100.1';
export const NODE6 = '2001:db8:1::1';
export const OUTSIDE = '198.51.100.2';
export const OUTSIDE6 = '2001:db8:1::2';

export function ip(...args: readonly string[]): string {
  return execFileSync('ip', args, { encoding: 'utf8', stdio: 'pipe' });
}

export function iptables(namespace: string, ...args: readonly string[]): void {
  execFileSync('ip', ['netns', 'exec', namespace, 'iptables', ...args], { stdio: 'pipe' });
}

export class World {
  readonly lab = new Lab();
  readonly #peers: Peer[] = [];
  pods: LabPod[] = [];
  core: Core | undefined;
  datapath: Datapath | undefined;
  masquerade: Masquerade | undefined;
  services: Services | undefined;
  uplinks: Uplinks | undefined;

  get outside(): string {
    return `${this.lab.prefix}x`;
  }

  namespaceOf(pod: LabPod): string {
    return `${this.lab.prefix}${pod.name}`;
  }

  async start(): Promise<void> {
    const { lab, outside } = this;
    for (const name of ['a', 'b']) this.pods.push(await lab.pod(name));
    // Errors come as often as tests ask for them.
    execFileSync('nsenter', [`--net=${lab.netns}`, 'sysctl', '-qw', 'net.ipv4.icmp_ratelimit=0']);
    ip('netns', 'add', outside);
    ip('-n', lab.node, 'link', 'add', 'up0', 'type', 'veth', 'peer', 'name', 'eth0', 'netns', outside);
    for (const [namespace, device, address, address6] of [
      [lab.node, 'up0', NODE, NODE6],
      [outside, 'eth0', OUTSIDE, OUTSIDE6],
    ] as const) {
      ip('-n', namespace, 'address', 'add', `${address}/24`, 'dev', device);
      ip('-n', namespace, 'address', 'add', `${address6}/64`, 'dev', device, 'nodad');
      ip('-n', namespace, 'link', 'set', device, 'up');
      ip('-n', namespace, 'link', 'set', 'lo', 'up');
    }
    await this.run();
    await this.listen(outside, 7777, 7778);
  }

  /** Starts an agent's share of it, which masquerades. */
  async run(configFile?: string): Promise<void> {
    const { lab } = this;
    const options = lab.options();
    const datapath = new Datapath({
      ...options,
      kernel: { ...options.kernel, maps: [...MASQUERADE_MAPS, ...SERVICE_MAPS, ...UPLINK_MAPS], auditMs: 50 },
      objects: () => [
        { ...UPLINK_SOURCE, hooks: uplinkHooks(() => uplinks.interfaces()) },
        { ...MASQUERADE, hooks: hooksAt(() => uplinks.interfaces()) },
      ],
    });
    const core = createCore({ ...options, kernel: { ...options.kernel, auditMs: 50 } }, datapath);
    const { db } = core;
    const map = (name: string): BpfMap => datapath.map(name);
    const common = { db, map, log: silent, nodeName: 'lab', lookMs: 20 };
    const uplinks = new Uplinks({ ...common, tables: core.tables, inNode: datapath.inNode });
    const masquerade = new Masquerade({
      ...{ ...common, uplinks, nodes: core.tables.nodes },
      ...(configFile === undefined ? {} : { configFile }),
    });
    const services = new Services({ ...common, nodes: core.tables.nodes, nodeNetns: lab.netns });
    db.write([core.tables.nodes], (txn) => {
      txn.upsert(core.tables.nodes, { name: 'lab', addresses: [NODE, NODE6], podCidrs: [], kubeApiserver: false });
    });
    datapath.start();
    await core.start();
    await uplinks.start();
    services.start();
    await masquerade.start();
    Object.assign(this, { datapath, core, masquerade, services, uplinks });
    // A later agent finds them in the state folder.
    if (configFile === undefined)
      for (const [at, pod] of this.pods.entries())
        await core.upsertEndpoint(pod.endpoint(at + 1, { 'k8s:app': pod.name }));
    for (const name of ['masq_uplinks', 'node_uplinks'])
      await eventually(
        async () => [...map(name).keys()].length,
        (count) => count === 1,
      );
    await eventually(
      async () => this.hooks(),
      (hooks) => hooks === 4,
    );
  }

  /** Programs at the uplink. */
  hooks(): number {
    const shown = execFileSync('ls', [`${this.lab.root}/hooks`], { encoding: 'utf8' });
    const [{ ifindex }] = JSON.parse(ip('-n', this.lab.node, '-j', 'link', 'show', 'dev', 'up0')) as [
      { ifindex: number },
    ];
    return shown.split('\n').filter((file) => file.endsWith(`-${ifindex}`)).length;
  }

  async halt(): Promise<void> {
    await this.services?.stop();
    await this.masquerade?.stop();
    await this.uplinks?.stop();
    await this.core?.stop();
    this.datapath?.stop();
    this.masquerade = undefined;
  }

  map(name: string): BpfMap {
    if (this.datapath === undefined) throw new Error('the agent does not run');
    return this.datapath.map(name);
  }

  /** As if an owner had more flows by so many. */
  addFlows(owner: number, by: number): void {
    const owners = this.map('nat_owners');
    const key = new Uint8Array(Uint32Array.of(owner).buffer);
    const [before = 0] = new Int32Array(Uint8Array.from(owners.lookup(key) ?? new Uint8Array(4)).buffer);
    owners.update(key, new Uint8Array(Int32Array.of(before + by).buffer));
  }

  /** Packets that were dropped for a reason; direction 1: what pods sent. */
  dropped(name: string, direction = 1): bigint {
    const reason = [...DROP_REASONS.values()].find((each) => each.name === name)?.number ?? 0;
    const value = this.map('metrics').lookup(metricsKey.encode({ reason, direction }));
    return value === undefined ? 0n : sumMetrics(value).packets;
  }

  /** Somebody listens there: UDP, TCP. */
  async listen(namespace: string, udp: number, tcp: number, address?: string): Promise<void> {
    await this.#peer(namespace, listener(udp, tcp, address)).line();
  }

  talker(namespace: string): Peer {
    return this.#peer(namespace, TALKER);
  }

  async watcher(): Promise<Peer> {
    const watcher = this.#peer(this.outside, WATCHER);
    await watcher.line();
    return watcher;
  }

  /** Runs a script of bpf/testing in a namespace. */
  peer(namespace: string, script: string): Peer {
    return this.#peer(namespace, script);
  }

  #peer(namespace: string, script: string): Peer {
    const args = ['netns', 'exec', namespace, process.execPath, '--input-type=module', '-e', script];
    const peer = new Peer(spawn('ip', args, { stdio: ['pipe', 'pipe', 'inherit'] }));
    this.#peers.push(peer);
    return peer;
  }

  async close(): Promise<void> {
    await this.halt();
    for (const peer of this.#peers) await peer.stop();
    ip('netns', 'delete', this.outside);
    this.lab.close();
  }
}
