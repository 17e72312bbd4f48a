/**
 * The network between the nodes: one namespace with a bridge, an uplink `eth0` for each node, and an "outside" namespace that
 * holds the addresses beyond the cluster and is everybody's default route. No route leaves these namespaces.
 */
import { ipBatch, run } from './run.ts';

export const NODE_NET = '172.30.0';
const OUTSIDE_HOST = `${NODE_NET}.250`;

/** Path of a named network namespace. */
export const netnsPath = (name: string): string => `/var/run/netns/${name}`;

export interface FabricNode {
  readonly netns: string;
  readonly address: string;
  readonly podCidr: string;
}

export class Fabric {
  readonly bridge: string;
  readonly outside: string;

  /** @param prefix namespaces are named `<prefix>-fabric`, `<prefix>-outside`. */
  constructor(prefix: string) {
    this.bridge = `${prefix}-fabric`;
    this.outside = `${prefix}-outside`;
  }

  /** @param outsideAddresses IPv4 addresses that exist beyond the cluster. */
  async start(outsideAddresses: readonly string[]): Promise<void> {
    await ipBatch([`netns add ${this.bridge}`, `netns add ${this.outside}`]);
    await ipBatch(['link set lo up', 'link add br0 type bridge', 'link set br0 up'], netnsPath(this.bridge));
    await this.#plug(this.outside, 'out', OUTSIDE_HOST);
    await ipBatch(
      outsideAddresses.map((address) => `addr add ${address}/32 dev lo`),
      netnsPath(this.outside),
    );
  }

  async addNode(node: FabricNode, index: number): Promise<void> {
    await ipBatch([`netns add ${node.netns}`]);
    await this.#plug(node.netns, `n${index}`, node.address);
    await ipBatch([`route add default via ${OUTSIDE_HOST}`], netnsPath(node.netns));
    await run('nsenter', [`--net=${netnsPath(node.netns)}`, 'sh', '-c', 'echo 1 > /proc/sys/net/ipv4/ip_forward']);
  }

  /** Pod networks are reached through their nodes, from every other node and from outside. */
  async route(nodes: readonly FabricNode[]): Promise<void> {
    for (const from of [{ netns: this.outside, address: '', podCidr: '' }, ...nodes]) {
      const lines = nodes
        .filter(({ address }) => address !== from.address)
        .map((to) => `route replace ${to.podCidr} via ${to.address}`);
      if (lines.length > 0) await ipBatch(lines, netnsPath(from.netns));
    }
  }

  async #plug(netns: string, port: string, address: string): Promise<void> {
    await ipBatch([`link add ${port} netns ${this.bridge} type veth peer name eth0 netns ${netns}`]);
    await ipBatch([`link set ${port} master br0 up`], netnsPath(this.bridge));
    await ipBatch(['link set lo up', `addr add ${address}/24 dev eth0`, 'link set eth0 up'], netnsPath(netns));
  }
}
