/** Services of objects of the API on a node without policies, for tests on the real kernel: its backends are addresses of the node itself. */
import { execFileSync } from 'node:child_process';
import { setTimeout as sleep } from 'node:timers/promises';
import type { EndpointSlice, Service } from '@weir/kube';
import { createStateDB, type StateDB } from '@weir/statedb';
import type { BpfMap } from 'libbpf-ts';
import { createTables } from '../../create-tables.ts';
import { Datapath } from '../../datapath/index.ts';
import { Lab, silent } from '../../datapath/testing/lab.ts';
import type { NodeRow } from '../../tables.ts';
import { SERVICE_MAPS } from '../maps.ts';
import { SOCKET_HOOKS, SOURCE } from '../programs.ts';
import { serviceObjectParts, sliceParts } from '../rows.ts';
import { Services } from '../services.ts';
import { Peer } from './peer.ts';

export const NODE = 'n1';
/** Addresses that backends may have, of both families. */
export const PODS = { 4: ['10.1.0.1', '10.1.0.2', '10.1.0.3'], 6: ['fd00:1::1', 'fd00:1::2', 'fd00:1::3'] } as const;
export const NODE_ADDRESSES = ['192.0.2.10', 'fd00:2::10'] as const;
export const OTHER_NODE_ADDRESSES = ['192.0.2.20', 'fd00:2::20'] as const;

/** The kernel has what was applied sooner, however busy the machine is. */
const PATIENCE_MS = 60_000;

export class World {
  readonly lab = new Lab();
  readonly db: StateDB = createStateDB();
  readonly services: Services;
  /** In the node's network namespace. */
  readonly node: Peer;
  /** In a pod, with IPv4. */
  pod!: Peer;
  readonly #tables = createTables(this.db);
  readonly #nodes = this.#tables.nodes;
  readonly endpoints = this.#tables.endpoints;
  readonly #datapath: Datapath;
  readonly #peers: Peer[] = [];

  private constructor() {
    for (const address of [...PODS[4], ...PODS[6], ...NODE_ADDRESSES])
      execFileSync('ip', ['-n', this.lab.node, 'addr', 'add', address, 'dev', 'lo']);
    this.node = new Peer(this.lab.netns);
    this.#peers.push(this.node);
    const options = this.lab.options();
    this.#datapath = new Datapath({
      ...options,
      kernel: { ...options.kernel, maps: SERVICE_MAPS, cgroupRoot: this.lab.cgroup() },
      objects: () => [{ ...SOURCE, hooks: SOCKET_HOOKS }],
    });
    this.services = new Services({
      ...{ db: this.db, map: (name) => this.#datapath.map(name), nodes: this.#nodes, nodeName: NODE },
      ...{ nodeNetns: this.lab.netns, log: silent },
    });
  }

  static async start(zone?: string): Promise<World> {
    const world = new World();
    await world.node.ready();
    world.pod = await world.#addPod('p');
    world.lab.cgroup(world.node);
    world.#datapath.start();
    world.services.start();
    const node = (name: string, addresses: readonly string[]): NodeRow => ({
      ...{ name, addresses, podCidrs: [], kubeApiserver: false, ...(zone === undefined ? {} : { zone }) },
    });
    world.db.write([world.#nodes], (txn) => {
      txn.upsert(world.#nodes, node(NODE, NODE_ADDRESSES));
      txn.upsert(world.#nodes, node('n2', OTHER_NODE_ADDRESSES));
    });
    for (const address of [...PODS[4], ...PODS[6]])
      for (const protocol of ['TCP', 'UDP'] as const) await world.node.serve(protocol, address, 8080);
    return world;
  }

  async #addPod(name: string): Promise<Peer> {
    await this.lab.pod(name);
    const peer = new Peer(`/var/run/netns/${this.lab.prefix}${name}`);
    this.#peers.push(peer);
    await peer.ready();
    this.lab.cgroup(peer);
    return peer;
  }

  /** What the API server has, and all of it in the kernel. */
  async apply(services: readonly Service[], slices: readonly EndpointSlice[]): Promise<void> {
    const { objects, slices: endpoints } = this.services.tables;
    this.db.write([objects, endpoints], (txn) => {
      txn.deleteAll(objects);
      txn.deleteAll(endpoints);
      for (const object of services) for (const row of serviceObjectParts(object).values()) txn.upsert(objects, row);
      for (const slice of slices) for (const row of sliceParts(slice).values()) txn.upsert(endpoints, row);
    });
    const patience = sleep(PATIENCE_MS, 'late', { ref: false });
    if ((await Promise.race([this.services.settled(), patience])) === 'late')
      throw new Error(`the kernel does not have the Services after ${PATIENCE_MS / 1000} s`);
  }

  map(name: string): BpfMap {
    return this.#datapath.map(name);
  }

  /** How many entries a map has. */
  size(map: string): number {
    return [...this.#datapath.map(map).keys()].length;
  }

  async stop(): Promise<void> {
    await this.services.stop();
    this.#datapath.stop();
    this.lab.close();
    for (const peer of this.#peers) peer.kill();
  }
}

export function service(spec: Service['spec'], more: Partial<Service> = {}): Service {
  const ports = (['TCP', 'UDP'] as const).map((protocol) => ({ name: protocol.toLowerCase(), protocol, port: 80 }));
  return {
    ...{ apiVersion: 'v1', kind: 'Service', metadata: { name: 'web', namespace: 'ns' }, ...more },
    spec: { type: 'ClusterIP', clusterIPs: ['10.96.0.10'], ports, ...spec },
  };
}

type Endpoint = EndpointSlice['endpoints'][number];

/** A slice of Service `web` for each family in which there are endpoints. */
export function slices(endpoints: readonly (string | Endpoint)[], service = 'web'): EndpointSlice[] {
  const all = endpoints.map((each) => (typeof each === 'string' ? { addresses: [each], nodeName: NODE } : each));
  return ([4, 6] as const).map((family) => ({
    apiVersion: 'discovery.k8s.io/v1',
    kind: 'EndpointSlice',
    metadata: { name: `${service}-${family}`, namespace: 'ns', labels: { 'kubernetes.io/service-name': service } },
    addressType: `IPv${family}`,
    endpoints: all.filter(({ addresses: [first = ''] }) => (first.includes(':') ? 6 : 4) === family),
    ports: (['TCP', 'UDP'] as const).map((protocol) => ({ name: protocol.toLowerCase(), protocol, port: 8080 })),
  }));
}
