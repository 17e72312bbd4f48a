/**
 * A Kubernetes cluster on one machine, on the real kernel: an embedded API server that the real kubectl talks to, the operator, nodes
 * that are network namespaces with an agent each, pods that are network namespaces with veths and real processes, and an outside.
 *
 * Guarantees: several clusters run side by side; `stop()` leaves no process, namespace, link or pin; what a killed cluster left is
 * removed by the next `Cluster.start()`. It is for demos, development and fault injection; it is no product.
 */
import { writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:net';
import { join } from 'node:path';

import { crds } from '@weir/kube';
import type { Family } from '@weir/net';
import { buildCni } from '@weir/node-agent/cni/build.ts';
import { inNetns } from 'libbpf-ts';
import { customAlphabet } from 'nanoid';
import { bundlePrograms } from '../../scripts/bundle.ts';
import { NODE_ENV, OPERATOR_FLAGS } from '../../scripts/images/catalog.ts';
import { placeObjects } from '../../scripts/images/objects.ts';
import { type ApiServer, createApiServer, type ServiceAddress } from './apiserver/index.ts';
import { Fabric, NODE_NET, netnsPath } from './fabric.ts';
import { Kubectl } from './kubectl.ts';
import { Kubelet, type Sandbox } from './kubelet.ts';
import { bpfRootOf, cgroupOf, claim, prefixOf, remains, remove, sweep } from './leftovers.ts';
import { ClusterNode } from './node.ts';
import { PodProcess } from './pod/process.ts';
import type { ProbeResult } from './pod/protocol.ts';
import { Program } from './process.ts';
import { type Output, TOOL_PATH } from './run.ts';
import {
  containerPorts,
  type Host,
  hostOf,
  OUTSIDE,
  OUTSIDE_PORTS,
  OUTSIDE6,
  type PodSpec,
  type ProbeOptions,
  probeBetween,
  type TestCluster,
} from './types.ts';
import { Webhooks } from './webhooks.ts';

const newId = customAlphabet('abcdefghijkmnpqrstuvwxyz23456789', 5);
const newSecret = customAlphabet('abcdefghijkmnpqrstuvwxyz23456789', 32);
/** Address of the API server inside each node. */
const API_IN_NODE = 'http://127.0.0.1:6443';

export interface ClusterOptions {
  /** Default 2. */
  readonly nodes?: number;
  /** Fixed API port on 127.0.0.1 of this machine; default any free one. */
  readonly apiPort?: number;
  /** Of nodes and pods. Default: both. */
  readonly families?: readonly Family[];
  /** Addresses beyond the cluster. Default 203.0.113.9, 10.1.2.3, 10.2.0.1 (spec section 11) and 2001:db8::9. */
  readonly outside?: readonly string[];
  /** TCP and UDP ports that the outside addresses answer on. Default 80. */
  readonly outsidePorts?: readonly number[];
  readonly agentArgs?: readonly string[];
  readonly operatorArgs?: readonly string[];
  /** Start without operator or agents (tests start them). Default true. */
  readonly operator?: boolean;
  /** Default 1, which leads without a lease; more elect their leader. */
  readonly operators?: number;
  readonly agents?: boolean;
  /** A DNS proxy runs on each node. Default false. */
  readonly dnsProxies?: boolean;
  /** The API server asks the operators about policies that are applied. Default false: tests apply wrong ones. */
  readonly webhooks?: boolean;
  /** Length of each node's IPv4 pod prefix, from 24 to 29. Default 24: small ones come round to the same addresses. */
  readonly podPrefix?: number;
  /** Each node's state folder is a disk of its own, of this size. */
  readonly stateDiskBytes?: number;
  /** CNI versions that pods are made with, in turn. */
  readonly cniVersions?: readonly string[];
  readonly onLog?: (line: string) => void;
}

export class Cluster implements TestCluster {
  readonly id: string;
  readonly name = 'weir';
  readonly api: ApiServer;
  readonly nodes: readonly ClusterNode[];
  readonly folder: string;
  /** For kubectl and the operator on this machine. */
  readonly kubeconfig: string;
  readonly logDir: string;
  readonly apiUrl: string;
  readonly #options: ClusterOptions;
  readonly #fabric: Fabric;
  readonly #kubectl: Kubectl;
  /** Folder of the bundled programs. */
  readonly #programs: string;
  readonly #webhooks: Webhooks | undefined;
  readonly #listeners: Server[] = [];
  readonly #hosts = new Map<string, PodProcess>();
  #kubelet: Kubelet | undefined;
  readonly #operators = new Map<number, Program>();

  private constructor(
    id: string,
    options: ClusterOptions,
    api: ApiServer,
    url: string,
    folder: string,
    programs: string,
    webhooks: Webhooks | undefined,
  ) {
    this.id = id;
    this.#webhooks = webhooks;
    this.#options = options;
    this.#programs = programs;
    this.api = api;
    this.apiUrl = url;
    this.folder = folder;
    this.logDir = join(folder, 'logs');
    this.kubeconfig = join(folder, 'kubeconfig');
    this.#kubectl = new Kubectl(this.kubeconfig, folder);
    writeFileSync(this.kubeconfig, api.kubeconfig(url), { mode: 0o600 });
    const inNode = join(folder, 'node-kubeconfig');
    writeFileSync(inNode, api.kubeconfig(API_IN_NODE), { mode: 0o600 });
    this.#fabric = new Fabric(prefixOf(id));
    const datapath = placeObjects(join(folder, 'objects'));
    this.nodes = Array.from({ length: options.nodes ?? 2 }, (_, index) => {
      const name = `node-${index + 1}`;
      const podCidrs = { 4: `10.244.${index + 1}.0/${options.podPrefix ?? 24}`, 6: `fd00:10:244:${index + 1}::/64` };
      const families = options.families ?? [4, 6];
      return new ClusterNode({
        name,
        netns: `${prefixOf(id)}-n${index + 1}`,
        addresses: families.map((family) => `${NODE_NET[family]}${index + 11}`),
        podCidrs: families.map((family) => podCidrs[family]),
        folder: join(folder, name),
        bpfRoot: bpfRootOf(id, name),
        cgroup: cgroupOf(id, name),
        kubeconfig: inNode,
        clusterName: this.name,
        logDir: this.logDir,
        agentArgs: ['--datapath-object', datapath, ...(options.agentArgs ?? [])],
        program: join(programs, 'agent.mjs'),
        ...(options.onLog === undefined ? {} : { onLog: options.onLog }),
        ...(options.stateDiskBytes === undefined ? {} : { stateDiskBytes: options.stateDiskBytes }),
      });
    });
  }

  static async start(options: ClusterOptions = {}): Promise<Cluster> {
    for (const dead of await sweep()) options.onLog?.(`removed what cluster ${dead} had left`);
    const id = newId();
    const folder = claim(id);
    const webhooks = options.webhooks === true ? await Webhooks.of(options.operators ?? 1) : undefined;
    let cluster: Cluster | undefined;
    const serviceAddress: ServiceAddress = (service) => webhooks?.address(service, cluster?.runningOperators ?? []);
    const api = createApiServer({ crds: crds(), serviceAddress });
    try {
      // For who may read the folder of the cluster, which is its user.
      const { url } = await api.listen(options.apiPort, undefined, newSecret());
      cluster = new Cluster(id, options, api, url, folder, await bundlePrograms(), webhooks);
      await cluster.#start();
      return cluster;
    } catch (error) {
      if (cluster === undefined) {
        await api.stop();
        await remove(id);
      } else await cluster.stop();
      throw error;
    }
  }

  async #start(): Promise<void> {
    const cni = await buildCni();
    const outside = this.#options.outside ?? [...OUTSIDE, ...OUTSIDE6];
    await this.#fabric.start(outside);
    for (const [index, node] of this.nodes.entries()) await this.#fabric.addNode(node, index + 1);
    await this.#fabric.route(this.nodes);
    for (const node of this.nodes) {
      this.#serveApiIn(node.netns);
      await this.#registerNode(node);
      await node.mountStateDisk();
    }
    const operators = this.#options.operator === false ? 0 : (this.#options.operators ?? 1);
    for (let number = 1; number <= operators; number += 1) this.startOperator(number);
    if (this.#options.dnsProxies === true) for (const node of this.nodes) node.launchDnsProxy();
    if (this.#options.agents !== false) await Promise.all(this.nodes.map((node) => node.startAgent()));
    for (const { name, running, tail } of this.operators) if (!running) throw new Error(`${name} ended: ${tail}`);
    await this.#webhooks?.configure(this.#kubectl, this.api);
    this.#kubelet = new Kubelet({
      prefix: prefixOf(this.id),
      kubeconfig: this.kubeconfig,
      apiUrl: this.apiUrl,
      cni,
      logDir: this.logDir,
      node: (name) => this.nodes.find((node) => node.name === name),
      onError: (message) => this.#options.onLog?.(message),
      cniVersions: this.#options.cniVersions ?? ['1.0.0', '1.1.0'],
    });
    this.#kubelet.start();
    const world = this.#process('outside', this.#fabric.outside);
    const ports = this.#options.outsidePorts ?? OUTSIDE_PORTS;
    await world.serve('outside', ports, ports);
  }

  /** A listener made inside the node's namespace stays there: its connections are served by this process. */
  #serveApiIn(netns: string): void {
    const listener = createServer((socket) => this.api.handleSocket(socket));
    inNetns(netnsPath(netns), () => {
      // Without a host the socket is made before listen() returns, that is, still inside the namespace.
      listener.listen({ port: 6443 });
    });
    this.#listeners.push(listener);
  }

  /** As a kubelet does when it starts. */
  async #registerNode(node: ClusterNode): Promise<void> {
    const now = new Date().toISOString();
    const nodes = { group: '', version: 'v1', plural: 'nodes' };
    await this.api.client.create(nodes, {
      apiVersion: 'v1',
      kind: 'Node',
      metadata: { name: node.name, labels: { 'kubernetes.io/hostname': node.name, 'kubernetes.io/os': 'linux' } },
      spec: { podCIDR: node.podCidr, podCIDRs: node.podCidrs },
    });
    const addresses = [
      ...node.addresses.map((address) => ({ type: 'InternalIP', address })),
      { type: 'Hostname', address: node.name },
    ];
    const ready = { type: 'Ready', status: 'True', reason: 'KubeletReady', message: 'the node runs' };
    const status = {
      addresses,
      conditions: [{ ...ready, lastTransitionTime: now, lastHeartbeatTime: now }],
      nodeInfo: { kubeletVersion: 'v1.34.0', osImage: 'one machine', containerRuntimeVersion: 'netns://1' },
    };
    await this.api.client.patch({ ...nodes, name: node.name }, 'merge', { status }, { subresource: 'status' });
  }

  /** Starts one of the operators, by number from 1. The lease names its holder by the program's name and something random. */
  startOperator(number = 1): void {
    const name = number === 1 ? 'operator' : `operator-${number}`;
    const several = (this.#options.operators ?? 1) > 1;
    const args = [
      ...OPERATOR_FLAGS,
      join(this.#programs, 'operator.mjs'),
      '--kubeconfig',
      this.kubeconfig,
      '--cluster-name',
      this.name,
      // One operator needs no election.
      '--leader-namespace',
      'default',
      ...(several ? [] : ['--no-leader-elect']),
      // Several clusters on one machine: any free port.
      '--health-address',
      '127.0.0.1:0',
      ...(this.#webhooks?.args(number) ?? []),
      ...(this.#options.operatorArgs ?? []),
    ];
    const logFile = join(this.logDir, `${name}.log`);
    const program = new Program({
      name,
      onEnd: (how) => this.#options.onLog?.(`the ${name} has ended (${how}); its log: ${logFile}`),
      command: process.execPath,
      args,
      logFile,
      env: { PATH: TOOL_PATH, POD_NAME: name, ...NODE_ENV },
    });
    this.#operators.set(number, program);
  }

  /** The first one. */
  get operator(): Program {
    const operator = this.#operators.get(1);
    if (operator === undefined) throw new Error('the operator was never started');
    return operator;
  }

  get runningOperators(): readonly number[] {
    return [...this.#operators].flatMap(([number, { running }]) => (running ? [number] : []));
  }

  get operators(): readonly Program[] {
    return [...this.#operators.values()];
  }

  /** Number of the operator that the lease names; undefined: there is no lease, or nobody has it. */
  async leader(): Promise<number | undefined> {
    const leases = { group: 'coordination.k8s.io', version: 'v1', plural: 'leases', namespace: 'default' };
    const { items } = await this.api.client.list(leases, { fieldSelector: 'metadata.name=weir-operator' });
    const [lease] = items as unknown as readonly { readonly spec?: { readonly holderIdentity?: string } }[];
    const holder = lease?.spec?.holderIdentity ?? '';
    return [...this.#operators].find(([, { name }]) => holder.slice(0, holder.lastIndexOf('-')) === name)?.[0];
  }

  get kubelet(): Kubelet {
    if (this.#kubelet === undefined) throw new Error('the cluster is not started');
    return this.#kubelet;
  }

  node(number: number): ClusterNode {
    const node = this.nodes[number - 1];
    if (node === undefined) throw new Error(`there is no node ${number}: the cluster has ${this.nodes.length}`);
    return node;
  }

  tryKubectl(args: readonly string[], stdin?: string): Promise<Output> {
    return this.#kubectl.attempt(args, stdin);
  }

  kubectl(args: readonly string[], stdin?: string): Promise<string> {
    return this.#kubectl.run(args, stdin);
  }

  apply(text: string): Promise<string> {
    return this.#kubectl.apply(text);
  }

  applyObjects(objects: readonly object[]): Promise<string> {
    return this.#kubectl.applyObjects(objects);
  }

  programmed(...policies: readonly string[]): Promise<void> {
    return this.#kubectl.programmed(policies);
  }

  async createPods(specs: readonly PodSpec[]): Promise<void> {
    await this.applyObjects(
      specs.map((spec) => ({
        apiVersion: 'v1',
        kind: 'Pod',
        metadata: { name: spec.name, namespace: spec.namespace ?? 'default', labels: spec.labels ?? {} },
        spec: {
          nodeName: this.node(spec.node).name,
          terminationGracePeriodSeconds: 1,
          containers: [
            {
              name: 'main',
              image: 'pod',
              ports: containerPorts(spec),
            },
          ],
        },
      })),
    );
    await this.#kubectl.podsReady(specs, 120);
  }

  deletePod(name: string, namespace?: string): Promise<void> {
    return this.#kubectl.deletePod(name, namespace);
  }

  sandbox(name: string): Sandbox {
    const key = name.includes('/') ? name : `default/${name}`;
    const sandbox = this.kubelet.sandbox(key);
    if (sandbox === undefined || sandbox.addresses.length === 0) throw new Error(`pod ${key} is not running`);
    return sandbox;
  }

  async host(name: string): Promise<Host> {
    if (name === 'outside')
      return hostOf(
        name,
        this.#options.outside ?? [...OUTSIDE, ...OUTSIDE6],
        this.#process(name, this.#fabric.outside),
      );
    const node = this.nodes.find((each) => each.name === name);
    if (node !== undefined) return hostOf(name, node.addresses, this.#process(name, node.netns, node.cgroup));
    const { addresses, process } = this.sandbox(name);
    if (process === undefined) throw new Error(`pod ${name} is not running`);
    return hostOf(name, addresses, process);
  }

  probe(from: string, to: string, options?: ProbeOptions): Promise<ProbeResult> {
    return probeBetween(this, from, to, options);
  }

  /** @param cgroup absent for who is outside */
  #process(name: string, netns: string, cgroup?: string): PodProcess {
    const found = this.#hosts.get(name);
    if (found?.program.running === true) return found;
    const made = new PodProcess(name, netnsPath(netns), join(this.logDir, `host-${name}.log`), cgroup);
    this.#hosts.set(name, made);
    return made;
  }

  async stop(): Promise<void> {
    await this.#kubelet?.stop();
    await Promise.all([...this.#hosts.values()].map((process) => process.stop()));
    await Promise.all(this.operators.map((operator) => operator.stop()));
    await Promise.all(this.nodes.map((node) => node.stopAgentIfStarted()));
    for (const listener of this.#listeners) listener.close();
    await this.api.stop();
    await remove(this.id);
    const left = remains(this.id);
    if (left.length > 0) throw new Error(`cluster ${this.id} left behind: ${left.join(', ')}`);
  }
}
