/**
 * A cluster, its traffic, and the record of what was asked of it: each method first writes into the world what may be from now on, and
 * then asks the cluster for it.
 */
import { existsSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { createKubeClient, createReflector, type Reflector, resources } from '@weir/kube';
import { netnsPath } from '../cluster/fabric.ts';
import { Cluster } from '../cluster/index.ts';
import type { ClusterNode } from '../cluster/node.ts';
import { run } from '../cluster/run.ts';
import { now } from './clock.ts';
import { Faults } from './faults.ts';
import { Judge } from './judge/judge.ts';
import { Ledger } from './ledger.ts';
import { Traffic } from './traffic/traffic.ts';
import { OUTSIDE_ADDRESS } from './world/generate.ts';
import { keyOf, type Labels, type PolicyName, type Rule, specOf } from './world/policy.ts';
import { type PodModel, type PolicyModel, World } from './world/world.ts';

export interface StageOptions {
  readonly nodes: number;
  /** Each node may give eight addresses, and not the thirteen of its pod CIDR: they come round sooner. */
  readonly fewAddresses?: boolean;
  readonly operators?: number;
  readonly intervalMs: number;
  /** Bytes of each node's state folder. */
  readonly stateDiskBytes: number;
  readonly log: (line: string) => void;
  /** Ends the run: `check` throws its reason. */
  readonly signal?: AbortSignal;
}

const PODS = { group: '', version: 'v1', plural: 'pods' } as const;
const SPACES = { group: '', version: 'v1', plural: 'namespaces' } as const;
/** Packets older than this have been judged. */
const REMEMBERED_MS = 60_000;
/** Calms for which a copy of a state file is kept. */
const COPIES = 3;

interface Condition {
  readonly type: string;
  readonly status: string;
  readonly observedGeneration?: number;
}

export class Stage {
  readonly cluster: Cluster;
  readonly world = new World();
  readonly ledger: Ledger;
  readonly faults: Faults;
  readonly #traffic: Traffic;
  readonly #log: (line: string) => void;
  readonly #signal: AbortSignal | undefined;
  readonly #reflectors: Reflector[] = [];
  /** Network namespace in which a pod takes part in the traffic. */
  readonly #placed = new Map<number, string>();
  /** Who had an address last. */
  readonly #owners = new Map<string, number>();
  /** What state files held at the last calms, the newest last. By node and file. */
  readonly #copies = new Map<string, readonly Buffer[]>();
  #pods = 0;
  #policies = 0;
  #timer: NodeJS.Timeout | undefined;

  private constructor(cluster: Cluster, options: StageOptions) {
    this.cluster = cluster;
    this.#log = options.log;
    this.#signal = options.signal;
    const judge = new Judge(this.world);
    this.ledger = new Ledger(this.world);
    this.faults = new Faults(cluster, {
      onKill: (node) => this.#lookAtFlows(node),
      onEffect: (effect) => this.ledger.took(effect),
    });
    this.#traffic = new Traffic({
      logFile: join(cluster.logDir, 'traffic.log'),
      intervalMs: options.intervalMs,
      onPacket: (packet) => this.ledger.enter(judge.judge(packet)),
    });
  }

  static async start(options: StageOptions): Promise<Stage> {
    const cluster = await Cluster.start({
      nodes: options.nodes,
      podPrefix: 28,
      operators: options.operators ?? 1,
      stateDiskBytes: options.stateDiskBytes,
      outsidePorts: [],
      // What goes wrong with pods while things are broken is no news.
      onLog: () => undefined,
    });
    try {
      if (options.fewAddresses === true) await occupy(cluster);
      const stage = new Stage(cluster, options);
      const outside = stage.world.addHost('outside', { kind: 'outside', address: OUTSIDE_ADDRESS });
      stage.#traffic.add({
        id: outside.id,
        netns: netnsPath(`weir-${cluster.id}-outside`),
        addresses: [OUTSIDE_ADDRESS],
      });
      stage.#watch();
      stage.#timer = setInterval(() => stage.#place(), 50);
      return stage;
    } catch (error) {
      await cluster.stop();
      throw error;
    }
  }

  async stop(): Promise<void> {
    clearInterval(this.#timer);
    await Promise.all(this.#reflectors.map((reflector) => reflector.stop()));
    this.faults.heal();
    await this.#traffic.stop();
    await this.cluster.stop();
  }

  /** Reads `Programmed` as a user does. */
  #watch(): void {
    const client = createKubeClient({ kubeconfig: this.cluster.kubeconfig, userAgent: 'chaos' });
    for (const resource of [resources.CiliumNetworkPolicy, resources.CiliumClusterwideNetworkPolicy]) {
      const see = (policy: { metadata: { uid?: string }; status?: { conditions?: readonly Condition[] } }): void => {
        const programmed = policy.status?.conditions?.find(({ type }) => type === 'Programmed');
        if (programmed?.status === 'True' && programmed.observedGeneration !== undefined)
          this.world.programmed(policy.metadata.uid ?? '', programmed.observedGeneration, now());
      };
      const reflector = createReflector({
        client,
        resource,
        sink: { replace: (policies) => policies.forEach(see), upsert: see, delete: () => undefined },
      });
      reflector.start();
      this.#reflectors.push(reflector);
    }
  }

  /** Lets a pod take part as soon as its network is there. */
  #place(): void {
    for (const pod of this.world.pods()) {
      const sandbox = this.cluster.kubelet.sandbox(`${pod.namespace}/${pod.name}`);
      const [address, address6] = sandbox?.addresses ?? [];
      if (sandbox === undefined || address === undefined || sandbox.netns === this.#placed.get(pod.id)) continue;
      this.#placed.set(pod.id, sandbox.netns);
      pod.address = address;
      pod.address6 = address6;
      if ((this.#owners.get(pod.address) ?? pod.id) !== pod.id) this.ledger.took('address reused');
      this.#owners.set(pod.address, pod.id);
      try {
        this.#traffic.remove(pod.id);
        this.#traffic.add({ id: pod.id, netns: netnsPath(sandbox.netns), addresses: sandbox.addresses });
      } catch (error) {
        // Seen by check() at the next step.
        this.#log(String(error));
      }
    }
    this.world.forget(this.#traffic.upTo - REMEMBERED_MS);
  }

  /** @throws Error when the run cannot go on: somebody has ended it, or its traffic is no more */
  check(): void {
    this.#signal?.throwIfAborted();
    this.#traffic.check();
  }

  /** Writes down what is done; findings show the last of these. */
  note(text: string): void {
    this.ledger.act(text, now());
    this.#log(text);
  }

  node(number: number): ClusterNode {
    return this.cluster.node(number);
  }

  async addNamespace(name: string, labels: Labels): Promise<void> {
    this.world.namespaces.set(name, labels);
    if (name === 'default') await this.#labelNamespace(name, labels);
    else
      await this.cluster.api.client.create(SPACES, { apiVersion: 'v1', kind: 'Namespace', metadata: { name, labels } });
  }

  async relabelNamespace(name: string, labels: Labels): Promise<void> {
    const gone = Object.keys(this.world.namespaces.get(name) ?? {}).filter((key) => labels[key] === undefined);
    this.note(`namespace ${name} has labels ${JSON.stringify(labels)}`);
    this.world.relabelNamespace(name, labels, now());
    this.ledger.took('namespace relabelled');
    await this.#labelNamespace(name, { ...Object.fromEntries(gone.map((key) => [key, null])), ...labels });
  }

  async #labelNamespace(name: string, labels: Readonly<Record<string, string | null>>): Promise<void> {
    await this.cluster.api.client.patch({ ...SPACES, name }, 'merge', { metadata: { labels } });
  }

  async createPod(spec: Pick<PodModel, 'namespace' | 'node' | 'labels'>): Promise<PodModel> {
    this.#pods += 1;
    const name = `p${this.#pods}`;
    this.note(`pod ${spec.namespace}/${name} on node-${spec.node} with ${JSON.stringify(spec.labels)}`);
    this.ledger.took('pod created');
    const pod = this.world.addPod({ ...spec, name }, now());
    await this.cluster.api.client.create(
      { ...PODS, namespace: spec.namespace },
      {
        apiVersion: 'v1',
        kind: 'Pod',
        metadata: { name, namespace: spec.namespace, labels: spec.labels },
        spec: {
          nodeName: this.node(spec.node).name,
          terminationGracePeriodSeconds: 1,
          containers: [{ name: 'main', image: 'pod' }],
        },
      },
    );
    return pod;
  }

  async deletePod(pod: PodModel): Promise<void> {
    this.note(`delete pod ${pod.namespace}/${pod.name} (${pod.address ?? 'no address'})`);
    pod.endsAt = now();
    this.ledger.took('pod deleted');
    this.#traffic.remove(pod.id);
    this.#placed.delete(pod.id);
    await this.cluster.api.client.delete({ ...PODS, namespace: pod.namespace, name: pod.name });
  }

  /** Until a pod has its address, or for `ms`. */
  async runs(pod: PodModel, ms: number): Promise<void> {
    const end = now() + ms;
    while (pod.address === undefined && now() < end) await sleep(20);
  }

  /** What has really taken place, by kind: what was done, and what the API server's faults met. */
  get effects(): Readonly<Record<string, number>> {
    const met = Object.entries(this.cluster.api.faults.counts).filter(([, count]) => count > 0);
    return { ...this.ledger.account.effects, ...Object.fromEntries(met) };
  }

  /** Until nothing of a deleted pod is left on its node, so that its address is free, or for `ms`: its agent may be down. */
  async gone(pod: PodModel, ms: number): Promise<void> {
    const key = `${pod.namespace}/${pod.name}`;
    const end = now() + ms;
    while (this.cluster.kubelet.sandbox(key) !== undefined && now() < end) await sleep(20);
    await Promise.race([this.cluster.kubelet.idle(key), sleep(Math.max(0, end - now()))]);
  }

  async relabel(pod: PodModel, labels: Labels): Promise<void> {
    this.note(`pod ${pod.namespace}/${pod.name}: labels ${JSON.stringify(pod.labels)} -> ${JSON.stringify(labels)}`);
    this.world.relabel(pod, labels, now());
    this.ledger.took('pod relabelled');
    const at = { ...PODS, namespace: pod.namespace, name: pod.name };
    await this.cluster.api.client.patch(at, 'merge', { metadata: { labels } });
  }

  async createPolicy(namespace: string | undefined, rule: Rule): Promise<PolicyModel> {
    this.#policies += 1;
    const name = { name: `c${this.#policies}`, namespace };
    this.note(`policy ${keyOf(name)}: ${JSON.stringify(specOf(rule))}`);
    const policy = this.world.addPolicy(name, rule, now());
    const made = await this.cluster.api.client.create(this.#policyRef(name), {
      apiVersion: 'cilium.io/v2',
      kind: namespace === undefined ? 'CiliumClusterwideNetworkPolicy' : 'CiliumNetworkPolicy',
      metadata: name,
      spec: specOf(rule),
    });
    policy.uid = (made.metadata as { uid: string }).uid;
    this.ledger.took('policy created');
    return policy;
  }

  async editPolicy(policy: PolicyModel, rule: Rule): Promise<void> {
    this.note(`policy ${keyOf(policy)}: ${JSON.stringify(specOf(rule))}`);
    this.world.editPolicy(policy, rule, now());
    const patch = [{ op: 'replace', path: '/spec', value: specOf(rule) }];
    const made = await this.cluster.api.client.patch({ ...this.#policyRef(policy), name: policy.name }, 'json', patch);
    this.ledger.took('policy edited');
    const { generation } = made.metadata as { generation: number };
    const counted = policy.versions.newest.generation;
    if (generation > counted) throw new Error(`policy ${keyOf(policy)} has generation ${generation}, not ${counted}`);
  }

  async deletePolicy(policy: PolicyModel): Promise<void> {
    this.note(`delete policy ${keyOf(policy)}`);
    this.world.editPolicy(policy, undefined, now());
    await this.cluster.api.client.delete({ ...this.#policyRef(policy), name: policy.name });
    this.ledger.took('policy deleted');
  }

  #policyRef({ namespace }: Pick<PolicyName, 'namespace'>) {
    const cilium = { group: 'cilium.io', version: 'v2' } as const;
    return namespace === undefined
      ? { ...cilium, plural: 'ciliumclusterwidenetworkpolicies' }
      : { ...cilium, plural: 'ciliumnetworkpolicies', namespace };
  }

  podsOf(node: number): readonly PodModel[] {
    return this.world.pods().filter((pod) => pod.node === node);
  }

  async killOperators(): Promise<void> {
    for (const number of this.cluster.operators.keys()) await this.faults.kill({ operator: number + 1 });
  }

  freezeOperators(): void {
    for (const number of this.cluster.operators.keys()) this.faults.freeze({ operator: number + 1 });
  }

  /** The state that a node's agent keeps is lost: until the next calm its pods may be shut off, but not opened. */
  stateLost(node: number): void {
    for (const pod of this.podsOf(node)) pod.states.beside({ kind: 'unknown' }, now());
    // It waits until it is told which rules were imported, as one that is not told something else.
    this.world.deaf(now());
  }

  /** What a state file held some calms ago; undefined: nobody looked yet. */
  olderFile(node: number, name: string): Buffer | undefined {
    return this.#copies.get(`${node} ${name}`)?.[0];
  }

  #copyFiles(): void {
    for (const [index, { stateDir }] of this.cluster.nodes.entries())
      for (const name of readdirSync(stateDir).filter((each) => each.endsWith('.json'))) {
        const key = `${index + 1} ${name}`;
        const newest = readFileSync(join(stateDir, name));
        this.#copies.set(key, [...(this.#copies.get(key) ?? []), newest].slice(-COPIES));
      }
  }

  /**
   * Takes the links of all a node's pods away; with the last reference to a link its program is gone.
   * @param known the judge is told that the pods may be open until the next calm
   */
  removeLinks(node: number, { known = true } = {}): void {
    if (known) for (const pod of this.podsOf(node)) pod.states.beside({ kind: 'open' }, now());
    const links = join(this.node(node).bpfRoot, 'links');
    this.ledger.took('link removed', existsSync(links) ? readdirSync(links).length : 0);
    rmSync(links, { recursive: true, force: true });
    this.faults.hiddenUntil(now() + 10_000);
  }

  /** Takes the pin of a map away. A live agent puts it back. */
  removeMapPin(node: number, map: string): void {
    const pin = join(this.node(node).bpfRoot, map);
    if (existsSync(pin)) this.ledger.took('map pin removed');
    rmSync(pin, { force: true });
    if (!this.node(node).agent.running) this.#lookAtFlows(node);
  }

  /** No agent has the map of connections open: without a pin its successor begins a new one. */
  #lookAtFlows(node: number): void {
    if (!existsSync(join(this.node(node).bpfRoot, 'ct4'))) this.world.flowsLost(node);
  }

  calm(at: number): void {
    this.world.calm(at);
    this.ledger.calm();
    this.#copyFiles();
  }
}

/** The last five addresses of each pod CIDR lead elsewhere: they are nobody's to give. */
async function occupy({ nodes }: Cluster): Promise<void> {
  for (const { netns, podCidr } of nodes)
    for (const [host, bits] of [
      [10, 31],
      [12, 30],
    ]) {
      const route = `${podCidr.slice(0, podCidr.lastIndexOf('.'))}.${host}/${bits}`;
      await run('nsenter', [`--net=${netnsPath(netns)}`, 'ip', 'route', 'add', 'blackhole', route]);
    }
}
