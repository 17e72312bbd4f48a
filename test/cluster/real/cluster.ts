/** The whole of a real cluster; see index.ts for what it promises. */
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { customAlphabet } from 'nanoid';
import { netnsPath } from '../fabric.ts';
import { freePort } from '../free-port.ts';
import { Kubectl } from '../kubectl.ts';
import type { ProbeResult } from '../pod/protocol.ts';
import { attempt, type Output } from '../run.ts';
import {
  type Host,
  hostOf,
  OUTSIDE,
  OUTSIDE_PORTS,
  OUTSIDE6,
  type PodSpec,
  type ProbeOptions,
  probeBetween,
  type TestCluster,
} from '../types.ts';
import { assets } from './assets.ts';
import { hierarchies } from './cgroups.ts';
import { ControlPlane, type ControlPlaneProgram } from './control-plane.ts';
import { explain } from './explain.ts';
import { Fleet } from './fleet.ts';
import { type ChartValues, Helm, type HelmOptions } from './helm.ts';
import { Hosts } from './hosts.ts';
import { writeBaseImages } from './images.ts';
import { claim, Records, remains, remove, sweep } from './leftovers.ts';
import { API_ADDRESS, API_PORT, prefixOf } from './names.ts';
import { Network } from './network.ts';
import type { EnterOptions, RealNode } from './node.ts';
import type { ProxyMode } from './node-files.ts';
import { Pki } from './pki.ts';
import { Pods } from './pods.ts';
import { stopOnSignal } from './signals.ts';

const BASE_IMAGES = 'base-images.tar';
const newId = customAlphabet('abcdefghijkmnpqrstuvwxyz23456789', 5);

export interface RealClusterOptions {
  /** Default 2. With 0 there is a control plane only. */
  readonly nodes?: number;
  /** kube-proxy on each node; `true` is iptables. Default none. */
  readonly kubeProxy?: boolean | ProxyMode;
  /** Tar files of images that every node gets, those that join later too. */
  readonly images?: readonly string[];
  /** Values to install the chart with; `false` or absent: no chart. */
  readonly install?: ChartValues | false;
  /** Routes from node to node are made from outside, for a network plugin that makes none. Default false. */
  readonly nodeRoutes?: boolean;
  /** IPv4 addresses beyond the cluster, and the TCP and UDP ports that they answer on. */
  readonly outside?: readonly string[];
  readonly outsidePorts?: readonly number[];
  /** Port on 127.0.0.1 of this machine; default any free one. */
  readonly apiPort?: number;
  /** The cluster's name in identity labels; must be the chart's value clusterName. Default `default`. */
  readonly name?: string;
  readonly onLog?: (line: string) => void;
}

export class RealCluster implements TestCluster {
  readonly id: string;
  readonly name: string;
  readonly folder: string;
  readonly logDir: string;
  readonly kubeconfig: string;
  /** For agents and operator, where nothing translates the Service `kubernetes`. */
  readonly api = { host: API_ADDRESS, port: API_PORT };
  readonly helm: Helm;
  readonly #options: RealClusterOptions;
  readonly #proxied: boolean;
  readonly #network: Network;
  readonly #pki: Pki;
  readonly #records: Records;
  readonly #controlPlane: ControlPlane;
  readonly #kubectl: Kubectl;
  readonly #hosts: Hosts;
  readonly #pods: Pods;
  readonly #fleet: Fleet;
  #forgetSignals: () => void = () => undefined;
  #stopping: Promise<void> | undefined;

  private constructor(id: string, options: RealClusterOptions, folder: string, bin: string, port: number) {
    this.id = id;
    this.name = options.name ?? 'default';
    this.folder = folder;
    this.logDir = join(folder, 'logs');
    this.#options = options;
    const proxy = options.kubeProxy === true ? 'iptables' : options.kubeProxy || undefined;
    this.#proxied = proxy !== undefined;
    this.#network = new Network(id);
    this.#pki = new Pki(join(folder, 'pki'));
    this.#records = new Records(folder);
    this.kubeconfig = this.#pki.file('admin.conf');
    this.#kubectl = new Kubectl(this.kubeconfig, folder);
    this.helm = new Helm(this.#kubectl, this.kubeconfig, folder, { apiServer: this.api, clusterName: this.name });
    this.#hosts = new Hosts(this.logDir, this.#records);
    this.#pods = new Pods(this.#kubectl, folder);
    this.#controlPlane = new ControlPlane({
      bin,
      folder: join(folder, 'cp'),
      logDir: this.logDir,
      netns: this.#network.controlPlane,
      pki: this.#pki,
      port,
    });
    this.#fleet = new Fleet({
      node: {
        folder,
        logDir: this.logDir,
        bin,
        pki: this.#pki,
        network: this.#network,
        hierarchies: hierarchies(prefixOf(id)),
        records: this.#records,
        proxy,
      },
      kubectl: this.#kubectl,
      hosts: this.#hosts,
      images: [join(folder, BASE_IMAGES), ...(options.images ?? [])],
      nodeRoutes: options.nodeRoutes === true,
    });
  }

  static async start(options: RealClusterOptions = {}): Promise<RealCluster> {
    const say = options.onLog ?? ((line: string) => process.stderr.write(`real cluster: ${line}\n`));
    for (const dead of await sweep()) say(`removed what cluster ${dead} had left`);
    const bin = await assets(say);
    const port = options.apiPort ?? (await freePort());
    const id = newId();
    const folder = claim(id);
    let cluster: RealCluster | undefined;
    try {
      cluster = new RealCluster(id, options, folder, bin, port);
      const made = cluster;
      cluster.#forgetSignals = stopOnSignal(() => made.stop());
      await cluster.#start(port);
      return cluster;
    } catch (error) {
      await (cluster?.stop() ?? remove(id)).catch((cause: unknown) => say(String(cause)));
      throw error;
    }
  }

  async #start(port: number): Promise<void> {
    await Promise.all([
      this.#pki.create(`https://127.0.0.1:${port}`),
      this.#network.start(this.#options.outside ?? [...OUTSIDE, ...OUTSIDE6]),
      writeBaseImages(join(this.folder, BASE_IMAGES)),
    ]);
    // Both at once: kubelets try until the API server answers.
    const [, nodes] = await Promise.all([this.#startControlPlane(), this.#fleet.boot(this.#options.nodes ?? 2)]);
    await this.#fleet.joined(nodes);
    const outside = this.#hosts.process('outside', this.#network.outside);
    const ports = this.#options.outsidePorts ?? OUTSIDE_PORTS;
    await outside.serve('outside', ports, ports);
    if (this.#options.install !== undefined && this.#options.install !== false)
      await this.install(this.#options.install);
  }

  async #startControlPlane(): Promise<void> {
    await this.#controlPlane.start();
    for (const [index, pid] of this.#controlPlane.pids.entries()) this.#records.set(`control plane ${index}`, pid);
    if (this.#proxied)
      await this.#kubectl.run([
        ...['create', 'clusterrolebinding', 'kube-proxy', '--clusterrole=system:node-proxier'],
        '--user=system:kube-proxy',
      ]);
    // Without it the API server refuses every pod, and its controller comes to it late.
    const end = Date.now() + 60_000;
    for (;;) {
      const made = await this.tryKubectl(['create', 'serviceaccount', 'default', '-n', 'default']);
      if (made.code === 0 || made.stderr.includes('AlreadyExists')) return;
      if (Date.now() > end) throw new Error(`no default service account within 60 s: ${made.stderr.trim()}`);
      await sleep(200);
    }
  }

  get nodes(): readonly RealNode[] {
    return this.#fleet.all;
  }

  node(number: number): RealNode {
    return this.#fleet.get(number);
  }

  /** A new node joins; returns when it is registered and has its images. It is Ready once a network plugin is there. */
  addNode(): Promise<RealNode> {
    return this.#fleet.add();
  }

  /** The power fails and comes back: all that ran is gone, the disk is as it was, /run, bpffs and network interfaces are new. */
  async rebootNode(number: number): Promise<void> {
    await this.#fleet.halt(number);
    await this.#fleet.resume(number);
  }

  /** The power fails for good; the Node object stays, as Kubernetes cannot know. */
  haltNode(number: number): Promise<void> {
    return this.#fleet.halt(number);
  }

  /** A node that was halted comes back. */
  bootNode(number: number): Promise<void> {
    return this.#fleet.resume(number);
  }

  /** A node leaves for good: halted, its Node object deleted, its disk erased. Drain it first, if its pods matter. */
  removeNode(number: number): Promise<void> {
    return this.#fleet.remove(number);
  }

  /** Ends a daemon of a node; its process 1 starts it again. Pods go on running. */
  restartKubelet(number: number): Promise<void> {
    return this.node(number).restart('kubelet');
  }

  restartContainerd(number: number): Promise<void> {
    return this.node(number).restart('containerd');
  }

  /** Kills a program of the control plane; it is started again after a second. */
  killControlPlane(program: ControlPlaneProgram): Promise<void> {
    return this.#controlPlane.kill(program);
  }

  /** Runs a command inside a node, or in the control plane's network namespace (`cp`), whatever its exit code. */
  enter(node: number | 'cp', command: readonly string[], options: EnterOptions = {}): Promise<Output> {
    if (node !== 'cp') return this.node(node).enter(command, options);
    return attempt('nsenter', [`--net=${netnsPath(this.#network.controlPlane)}`, '--', ...command], options);
  }

  /** Puts images of a tar file on every node, and on those that join later. */
  addImage(file: string): Promise<void> {
    return this.#fleet.addImage(file);
  }

  /** The bridge plugin with routes between nodes, as a baseline. Returns when every node is Ready. */
  bridgeOn(): Promise<void> {
    return this.#fleet.bridgeOn();
  }

  /**
   * Takes it away again. Pods that have it keep their interface until they are deleted, but lose their routes to other nodes; with
   * `keepPods` the bridge stays too, so that those of one node go on talking.
   */
  bridgeOff(options: { readonly keepPods?: boolean } = {}): Promise<void> {
    return this.#fleet.bridgeOff(options);
  }

  /** Waits until every node is Ready; the error explains those that are not. */
  nodesReady(seconds?: number): Promise<void> {
    return this.#fleet.ready(seconds);
  }

  /** What Kubernetes says about the pods of a namespace, for the text of an error. */
  explain(namespace: string): Promise<string> {
    return explain(this.#kubectl, namespace);
  }

  /** `helm install weir charts/weir` in kube-system; returns when all of it and every node is ready. */
  async install(values: ChartValues = {}, options: HelmOptions = {}): Promise<string> {
    const said = await this.helm.install(values, options);
    await this.nodesReady();
    return said;
  }

  upgrade(values?: ChartValues, options?: HelmOptions): Promise<string> {
    return this.helm.upgrade(values, options);
  }

  rollback(revision?: number, options?: HelmOptions): Promise<string> {
    return this.helm.rollback(revision, options);
  }

  uninstall(options?: HelmOptions): Promise<string> {
    return this.helm.uninstall(options);
  }

  helmTest(options?: HelmOptions): Promise<string> {
    return this.helm.test(options);
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

  createPods(specs: readonly PodSpec[]): Promise<void> {
    return this.#pods.create(specs);
  }

  deletePod(name: string, namespace?: string): Promise<void> {
    return this.#pods.delete(name, namespace);
  }

  /** Also `control-plane`, in the API server's network namespace. */
  async host(name: string): Promise<Host> {
    const host = (addresses: readonly string[], netns: string): Host =>
      hostOf(name, addresses, this.#hosts.process(name, netns));
    if (name === 'outside') return host(this.#options.outside ?? [...OUTSIDE, ...OUTSIDE6], this.#network.outside);
    if (name === 'control-plane') return host([API_ADDRESS], this.#network.controlPlane);
    const node = this.nodes.find((each) => each.name === name);
    return node === undefined ? this.#pods.host(name) : host(node.addresses, node.netns);
  }

  probe(from: string, to: string, options?: ProbeOptions): Promise<ProbeResult> {
    return probeBetween(this, from, to, options);
  }

  stop(): Promise<void> {
    this.#stopping ??= this.#stop();
    return this.#stopping;
  }

  async #stop(): Promise<void> {
    await this.#pods.stop();
    await this.#hosts.stop();
    await this.#fleet.stop();
    await this.#controlPlane.stop();
    await remove(this.id);
    this.#forgetSignals();
    const left = remains(this.id);
    if (left.length > 0) throw new Error(`cluster ${this.id} left behind: ${left.join(', ')}`);
  }
}
