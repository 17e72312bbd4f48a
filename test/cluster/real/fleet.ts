/** The nodes of a cluster: they join, reboot, fail and leave; each gets the images and the routes of the cluster. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Kubectl } from '../kubectl.ts';
import { bridgeOff, bridgeOn } from './bridge.ts';
import { explain } from './explain.ts';
import type { Hosts } from './hosts.ts';
import { MAX_NODES } from './names.ts';
import type { PodNetwork } from './network.ts';
import { RealNode, type RealNodeOptions } from './node.ts';

export interface FleetOptions {
  /** What all nodes have in common. */
  readonly node: Omit<RealNodeOptions, 'number'>;
  readonly kubectl: Kubectl;
  readonly hosts: Hosts;
  /** Tar files. */
  readonly images: readonly string[];
  /** Routes from node to node are made here. */
  readonly nodeRoutes: boolean;
}

export class Fleet {
  readonly #options: FleetOptions;
  readonly #images: string[];
  readonly #nodes = new Map<number, RealNode>();
  /** Of each node one of each family, IPv4 first. */
  readonly #podNetworks = new Map<number, readonly string[]>();
  #nodeRoutes: boolean;
  #bridge = false;
  #last = 0;

  constructor(options: FleetOptions) {
    this.#options = options;
    this.#images = [...options.images];
    this.#nodeRoutes = options.nodeRoutes;
  }

  get all(): readonly RealNode[] {
    return [...this.#nodes.values()];
  }

  get(number: number): RealNode {
    const node = this.#nodes.get(number);
    if (node === undefined)
      throw new Error(`there is no node ${number}: the cluster has ${[...this.#nodes.keys()].join(', ') || 'none'}`);
    return node;
  }

  /** New nodes, with their images, not yet known to the API server. */
  async boot(count: number): Promise<readonly RealNode[]> {
    const made = Array.from({ length: count }, () => {
      this.#last += 1;
      if (this.#last > MAX_NODES) throw new Error(`a cluster has at most ${MAX_NODES} nodes in its life`);
      const node = new RealNode({ ...this.#options.node, number: this.#last });
      this.#nodes.set(node.number, node);
      return node;
    });
    await Promise.all(
      made.map(async (node) => {
        await node.install();
        await node.boot();
        for (const file of this.#images) await node.importImage(file);
      }),
    );
    return made;
  }

  /** Waits until nodes are registered and have their pod networks, and sets the routes. */
  async joined(nodes: readonly RealNode[]): Promise<void> {
    await Promise.all(nodes.map((node) => this.#learnPodNetwork(node)));
    await this.#route();
    if (this.#bridge) for (const node of nodes) bridgeOn(node.folder, this.#cidr(node));
  }

  async #learnPodNetwork(node: RealNode, timeoutMs = 180_000): Promise<void> {
    const end = Date.now() + timeoutMs;
    for (;;) {
      const { stdout } = await this.#options.kubectl.attempt([
        ...['get', 'node', node.name, '-o', 'jsonpath={.spec.podCIDRs[*]}'],
      ]);
      if (stdout !== '') {
        this.#podNetworks.set(node.number, stdout.split(' '));
        return;
      }
      if (!node.running) throw new Error(`${node.name} ended before it joined: ${node.log('kubelet')}`);
      if (Date.now() > end)
        throw new Error(`${node.name} did not join within ${timeoutMs} ms. Its kubelet:\n${node.log('kubelet')}`);
      await sleep(200);
    }
  }

  #cidr(node: RealNode): string {
    const [cidr] = this.#podNetworks.get(node.number) ?? [];
    if (cidr === undefined) throw new Error(`${node.name} has no pod network yet`);
    return cidr;
  }

  get #networks(): readonly PodNetwork[] {
    return [...this.#podNetworks].flatMap(([node, cidrs]) => cidrs.map((cidr) => ({ node, cidr })));
  }

  get #running(): readonly number[] {
    return this.all.filter((node) => node.running).map(({ number }) => number);
  }

  #route(): Promise<void> {
    return this.#options.node.network.route(this.#running, this.#networks, this.#nodeRoutes);
  }

  async add(): Promise<RealNode> {
    const [node] = await this.boot(1);
    if (node === undefined) throw new Error('no node was made');
    await this.joined([node]);
    return node;
  }

  async halt(number: number): Promise<void> {
    const node = this.get(number);
    await this.#options.hosts.dismiss(node.name);
    await node.halt();
  }

  /** A node that was halted comes back. */
  async resume(number: number): Promise<void> {
    await this.get(number).boot();
    await this.#route();
  }

  async remove(number: number): Promise<void> {
    const node = this.get(number);
    await this.halt(number);
    this.#nodes.delete(number);
    await this.#options.kubectl.run(['delete', 'node', node.name]);
    const left = this.#networks.filter((network) => network.node === number);
    await this.#options.node.network.unroute(this.#nodeRoutes ? this.#running : [], left, true);
    this.#podNetworks.delete(number);
    node.erase();
  }

  async addImage(file: string): Promise<void> {
    this.#images.push(file);
    await Promise.all(this.all.map((node) => node.importImage(file)));
  }

  async bridgeOn(): Promise<void> {
    this.#bridge = true;
    this.#nodeRoutes = true;
    await this.#route();
    for (const node of this.all) bridgeOn(node.folder, this.#cidr(node));
    await this.ready();
  }

  async bridgeOff({ keepPods = false }: { readonly keepPods?: boolean } = {}): Promise<void> {
    this.#bridge = false;
    this.#nodeRoutes = this.#options.nodeRoutes;
    for (const node of this.all) bridgeOff(node.folder);
    if (!this.#nodeRoutes) await this.#options.node.network.unroute(this.#running, this.#networks, false);
    if (keepPods) return;
    // A node without such pods has none.
    for (const node of this.all) await node.enter(['ip', 'link', 'delete', 'cni0']);
  }

  /** Waits until every node is Ready; the error explains those that are not. */
  async ready(seconds = 90): Promise<void> {
    if (this.#nodes.size === 0) return;
    const { kubectl } = this.#options;
    const waited = await kubectl.attempt([
      ...['wait', '--for=condition=Ready', 'node', '--all', `--timeout=${seconds}s`],
    ]);
    if (waited.code === 0) return;
    const kubelets = this.all.map((node) => `kubelet of ${node.name}:\n${node.log('kubelet', 2000)}`);
    const said = await explain(kubectl, 'kube-system');
    throw new Error([`nodes are not Ready: ${waited.stderr.trim()}`, said, ...kubelets].join('\n\n'));
  }

  async stop(): Promise<void> {
    await Promise.all(this.all.map((node) => node.halt()));
  }
}
