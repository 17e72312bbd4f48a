/**
 * The network between the nodes: one namespace with a bridge, an uplink `eth0` for each node, and an "outside" namespace that
 * holds the addresses beyond the cluster and is everybody's default route. No route leaves these namespaces.
 */
import { type Family, familyOf } from '@weir/net';
import { ipBatch, run } from './run.ts';

/** Of the networks of both families, what comes before the number of a host. */
export const NODE_NET: Readonly<Record<Family, string>> = { 4: '172.30.0.', 6: 'fd00:172:30::' };
const BITS: Readonly<Record<Family, number>> = { 4: 24, 6: 64 };
const OUTSIDE_HOST = 250;

/** Path of a named network namespace. */
export const netnsPath = (name: string): string => `/var/run/netns/${name}`;

export interface FabricNode {
  readonly netns: string;
  /** Of each family one at most. */
  readonly addresses: readonly string[];
  readonly podCidrs: readonly string[];
}

export class Fabric {
  readonly bridge: string;
  readonly outside: string;

  /** @param prefix namespaces are named `<prefix>-fabric`, `<prefix>-outside`. */
  constructor(prefix: string) {
    this.bridge = `${prefix}-fabric`;
    this.outside = `${prefix}-outside`;
  }

  /** @param outsideAddresses that exist beyond the cluster. */
  async start(outsideAddresses: readonly string[]): Promise<void> {
    await ipBatch([`netns add ${this.bridge}`, `netns add ${this.outside}`]);
    await ipBatch(['link set lo up', 'link add br0 type bridge', 'link set br0 up'], netnsPath(this.bridge));
    await this.#plug(this.outside, 'out', [gatewayOf(4), gatewayOf(6)]);
    await ipBatch(
      outsideAddresses.map((address) => `addr add ${address} dev lo`),
      netnsPath(this.outside),
    );
  }

  async addNode(node: FabricNode, index: number): Promise<void> {
    await ipBatch([`netns add ${node.netns}`]);
    await this.#plug(node.netns, `n${index}`, node.addresses);
    await ipBatch(
      node.addresses.map((address) => `route add default via ${gatewayOf(familyOf(address))}`),
      netnsPath(node.netns),
    );
    await set(node.netns, 'ipv4/ip_forward', 1);
    await set(node.netns, 'ipv6/conf/all/forwarding', 1);
  }

  /** Pod networks are reached through their nodes, from every other node and from outside. */
  async route(nodes: readonly FabricNode[]): Promise<void> {
    for (const netns of [this.outside, ...nodes.map((node) => node.netns)]) {
      const lines = nodes
        .filter((to) => to.netns !== netns)
        .flatMap(({ podCidrs, addresses }) =>
          podCidrs.map(
            (cidr) => `route replace ${cidr} via ${addresses.find((at) => familyOf(at) === familyOf(cidr))}`,
          ),
        );
      if (lines.length > 0) await ipBatch(lines, netnsPath(netns));
    }
  }

  async #plug(netns: string, port: string, addresses: readonly string[]): Promise<void> {
    // Nobody waits until an address may be used.
    await set(netns, 'ipv6/conf/default/accept_dad', 0);
    await ipBatch([`link add ${port} netns ${this.bridge} type veth peer name eth0 netns ${netns}`]);
    await ipBatch([`link set ${port} master br0 up`], netnsPath(this.bridge));
    await ipBatch(
      [
        'link set lo up',
        ...addresses.map((address) => `addr add ${address}/${BITS[familyOf(address)]} dev eth0`),
        'link set eth0 up',
      ],
      netnsPath(netns),
    );
  }
}

function gatewayOf(family: Family): string {
  return `${NODE_NET[family]}${OUTSIDE_HOST}`;
}

async function set(netns: string, name: string, value: number): Promise<void> {
  await run('nsenter', [`--net=${netnsPath(netns)}`, 'sh', '-c', `echo ${value} > /proc/sys/net/${name}`]);
}
