/**
 * The network of a cluster: a namespace for the control plane, with a bridge that every node's `eth0` is joined to, and one for the
 * outside hosts, which is everybody's default route. None has a way out of the machine, or into it.
 *
 * Pods are reached from the control plane (webhooks) and from outside by routes through their nodes, kept here. Routes between nodes are
 * the CNI's task, and made here only when asked for.
 */
import { existsSync } from 'node:fs';
import { netnsPath } from '../fabric.ts';
import { attempt, ipBatch, run } from '../run.ts';
import {
  API_ADDRESS,
  API_ADDRESS6,
  netnsOf,
  nodeAddress,
  nodeAddress6,
  nodeName,
  OUTSIDE_GATEWAY,
  OUTSIDE_GATEWAY6,
} from './names.ts';

export interface PodNetwork {
  /** Number of the node. */
  readonly node: number;
  readonly cidr: string;
}

/** By which address of its node a pod network is reached. */
const via = ({ node, cidr }: PodNetwork): string => (cidr.includes(':') ? nodeAddress6(node) : nodeAddress(node));

const DEFAULT_ROUTES = [OUTSIDE_GATEWAY, OUTSIDE_GATEWAY6].map((gateway) => `route add default via ${gateway}`);

export class Network {
  readonly controlPlane: string;
  readonly outside: string;
  readonly #id: string;

  constructor(id: string) {
    this.#id = id;
    this.controlPlane = netnsOf(id, 'cp');
    this.outside = netnsOf(id, 'outside');
  }

  netns(node: number): string {
    return netnsOf(this.#id, nodeName(node));
  }

  async start(outsideAddresses: readonly string[]): Promise<void> {
    await ipBatch([`netns add ${this.controlPlane}`, `netns add ${this.outside}`]);
    await ipBatch(
      [
        'link set lo up',
        'link add br0 type bridge',
        `addr add ${API_ADDRESS}/24 dev br0`,
        `addr add ${API_ADDRESS6}/64 dev br0 nodad`,
        'link set br0 up',
      ],
      netnsPath(this.controlPlane),
    );
    await this.#plug(this.outside, 'outside', [OUTSIDE_GATEWAY, OUTSIDE_GATEWAY6]);
    await ipBatch(
      outsideAddresses.map((address) => `addr add ${address} dev lo`),
      netnsPath(this.outside),
    );
    await ipBatch(DEFAULT_ROUTES, netnsPath(this.controlPlane));
  }

  async addNode(node: number): Promise<void> {
    const netns = this.netns(node);
    await ipBatch([`netns add ${netns}`]);
    await this.#plug(netns, nodeName(node), [nodeAddress(node), nodeAddress6(node)]);
    await ipBatch(DEFAULT_ROUTES, netnsPath(netns));
    const settings = ['net/ipv4/ip_forward', 'net/ipv6/conf/all/forwarding', 'net/bridge/bridge-nf-call-iptables'];
    const write = settings.map((name) => `[ ! -e /proc/sys/${name} ] || echo 1 > /proc/sys/${name}`).join('; ');
    await run('nsenter', [`--net=${netnsPath(netns)}`, 'sh', '-ec', write]);
  }

  /** Takes a node's network away, with whatever was made in it. */
  async removeNode(node: number): Promise<void> {
    // The uplink first, and at once: a namespace is taken apart some time after its name is gone.
    if (existsSync(netnsPath(this.controlPlane)))
      await attempt('ip', ['-n', this.controlPlane, 'link', 'delete', nodeName(node)]);
    if (existsSync(netnsPath(this.netns(node)))) await run('ip', ['netns', 'delete', this.netns(node)]);
  }

  /** Sets the routes to pods. @param nodes every node of the cluster. @param between also from node to node. */
  async route(nodes: readonly number[], networks: readonly PodNetwork[], between: boolean): Promise<void> {
    const lines = networks.map((network) => `route replace ${network.cidr} via ${via(network)}`);
    if (lines.length === 0) return;
    for (const netns of [this.controlPlane, this.outside]) await ipBatch(lines, netnsPath(netns));
    if (!between) return;
    for (const from of nodes) {
      const others = networks.filter(({ node }) => node !== from);
      if (others.length > 0)
        await ipBatch(
          others.map((network) => `route replace ${network.cidr} via ${via(network)}`),
          netnsPath(this.netns(from)),
        );
    }
  }

  /** Removes the routes to pod networks. @param everywhere from the control plane and outside too, not only between nodes. */
  async unroute(nodes: readonly number[], networks: readonly PodNetwork[], everywhere: boolean): Promise<void> {
    const from = [...nodes.map((node) => this.netns(node)), ...(everywhere ? [this.controlPlane, this.outside] : [])];
    for (const netns of from)
      for (const network of networks)
        await attempt('ip', ['-n', netns, 'route', 'delete', network.cidr, 'via', via(network)]);
  }

  async #plug(netns: string, port: string, [address, address6]: readonly [string, string]): Promise<void> {
    await ipBatch([`link add ${port} netns ${this.controlPlane} type veth peer name eth0 netns ${netns}`]);
    await ipBatch([`link set ${port} master br0 up`], netnsPath(this.controlPlane));
    await ipBatch(
      [
        'link set lo up',
        `addr add ${address}/24 dev eth0`,
        `addr add ${address6}/64 dev eth0 nodad`,
        'link set eth0 up',
      ],
      netnsPath(netns),
    );
  }
}
