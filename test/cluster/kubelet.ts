/**
 * Runs the pods of the cluster's nodes as kubelet would: a network namespace, the CNI plugin, then a real process, then status;
 * and the way back when a pod is deleted.
 */
import { randomUUID } from 'node:crypto';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { createKubeClient, createReflector, type KubeClient, type Pod, type Reflector, resources } from '@weir/kube';
import { netnsPath } from './fabric.ts';
import { PodProcess } from './pod/process.ts';
import { attempt, run } from './run.ts';

/** What the kubelet must know of a node. */
export interface KubeletNode {
  readonly name: string;
  readonly netns: string;
  /** Folder of the cgroup that its processes are in. */
  readonly cgroup: string;
  readonly addresses: readonly string[];
  readonly socket: string;
}

export interface KubeletOptions {
  readonly prefix: string;
  readonly kubeconfig: string;
  readonly apiUrl: string;
  /** The CNI plugin binary. */
  readonly cni: string;
  readonly logDir: string;
  readonly node: (name: string) => KubeletNode | undefined;
  readonly onError: (message: string) => void;
  /** CNI versions used in turn. */
  readonly cniVersions: readonly string[];
}

/** A pod that runs: its namespace, addresses and process. */
export interface Sandbox {
  readonly key: string;
  readonly uid: string;
  readonly containerId: string;
  readonly netns: string;
  readonly node: KubeletNode;
  readonly cniVersion: string;
  /** None until it is attached. */
  addresses: readonly string[];
  process?: PodProcess;
}

type Port = { readonly containerPort: number; readonly protocol?: string };
const ports = (pod: Pod, protocol: string): number[] =>
  (pod.spec?.containers ?? [])
    .flatMap((container) => (container.ports ?? []) as readonly Port[])
    .filter((port) => (port.protocol ?? 'TCP') === protocol)
    .map((port) => port.containerPort);
const keyOf = (pod: Pod): string => `${pod.metadata.namespace ?? ''}/${pod.metadata.name}`;

/** A CNI plugin's answer that is not a success. */
export class CniError extends Error {
  readonly code: number;
  constructor(command: string, code: number, text: string) {
    super(`CNI ${command} failed: ${text}`);
    this.name = 'CniError';
    this.code = code;
  }
}

export class Kubelet {
  readonly #options: KubeletOptions;
  readonly #client: KubeClient;
  readonly #reflector: Reflector;
  readonly #sandboxes = new Map<string, Sandbox>();
  /** Work of one pod is serial; of different pods, parallel. */
  readonly #work = new Map<string, Promise<void>>();
  #hung: Promise<void> = Promise.resolve();
  #count = 0;
  #stopping = false;

  constructor(options: KubeletOptions) {
    this.#options = options;
    this.#client = createKubeClient({ kubeconfig: options.kubeconfig, userAgent: 'weir-test-kubelet' });
    this.#reflector = createReflector<Pod>({
      client: this.#client,
      resource: resources.Pod,
      sink: {
        replace: (pods) => {
          const seen = new Set(pods.map(keyOf));
          for (const pod of pods) this.#see(pod);
          for (const key of this.#sandboxes.keys()) if (!seen.has(key)) this.#enqueue(key, () => this.#teardown(key));
        },
        upsert: (pod) => this.#see(pod),
        delete: (pod) => this.#enqueue(keyOf(pod), () => this.#teardown(keyOf(pod))),
      },
    });
  }

  start(): void {
    this.#reflector.start();
  }

  /** Stops watching and ends every pod: processes, attachments, namespaces. */
  async stop(): Promise<void> {
    this.#stopping = true;
    await this.#reflector.stop();
    await Promise.all(this.#work.values());
    await Promise.all([...this.#sandboxes.keys()].map((key) => this.#teardown(key)));
  }

  /** Does nothing with any pod until the function that this returns is called. */
  hang(): () => void {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#hung = promise;
    return resolve;
  }

  sandbox(key: string): Sandbox | undefined {
    return this.#sandboxes.get(key);
  }

  /** Resolves when everything that is to be done with the pod is done. */
  async idle(key: string): Promise<void> {
    await this.#work.get(key);
  }

  #enqueue(key: string, work: () => Promise<void>): void {
    const previous = this.#work.get(key) ?? Promise.resolve();
    const next = previous
      .then(() => this.#hung)
      .then(work)
      .catch((error: unknown) =>
        this.#options.onError(`pod ${key}: ${error instanceof Error ? error.message : String(error)}`),
      );
    this.#work.set(key, next);
  }

  #see(pod: Pod): void {
    const node = this.#options.node(pod.spec?.nodeName ?? '');
    if (node === undefined || pod.spec?.hostNetwork === true) return;
    const key = keyOf(pod);
    if (pod.metadata.deletionTimestamp !== undefined) {
      this.#enqueue(key, async () => {
        if (this.#sandboxes.get(key)?.uid === pod.metadata.uid) await this.#teardown(key);
        await this.#forget(pod);
      });
    } else if (pod.status?.phase === undefined || pod.status.phase === 'Pending')
      this.#enqueue(key, () => this.#setup(pod, node));
  }

  async #setup(pod: Pod, node: KubeletNode): Promise<void> {
    const key = keyOf(pod);
    if (this.#stopping || this.#sandboxes.has(key)) return;
    this.#count += 1;
    const netns = `${this.#options.prefix}-p${this.#count}`;
    const cniVersion = this.#options.cniVersions[this.#count % this.#options.cniVersions.length] ?? '1.0.0';
    const sandbox: Sandbox = {
      key,
      uid: pod.metadata.uid ?? '',
      containerId: randomUUID().replaceAll('-', ''),
      netns,
      node,
      cniVersion,
      addresses: [],
    };
    this.#sandboxes.set(key, sandbox);
    try {
      await run('ip', ['netns', 'add', netns]);
      await run('nsenter', [`--net=${netnsPath(netns)}`, 'ip', 'link', 'set', 'lo', 'up']);
      sandbox.addresses = await this.#add(sandbox, pod);
      const process = new PodProcess(
        key,
        netnsPath(netns),
        join(this.#options.logDir, `pod-${pod.metadata.name}.log`),
        node.cgroup,
      );
      sandbox.process = process;
      await process.serve(pod.metadata.name, ports(pod, 'TCP'), ports(pod, 'UDP'));
      await this.#report(pod, node, sandbox.addresses);
    } catch (error) {
      await this.#teardown(key);
      // First: an API server that refuses the status keeps nobody from another try.
      if (!this.#stopping) setTimeout(() => this.#enqueue(key, () => this.#setup(pod, node)), 500).unref();
      await this.#failed(pod, error instanceof Error ? error.message : String(error));
      throw error;
    }
  }

  async #teardown(key: string): Promise<void> {
    const sandbox = this.#sandboxes.get(key);
    if (sandbox === undefined) return;
    this.#sandboxes.delete(key);
    await sandbox.process?.stop();
    if (existsSync(sandbox.node.socket)) {
      const [namespace = '', name = ''] = key.split('/');
      await this.cni('DEL', sandbox, { namespace, name }).catch((error: unknown) =>
        this.#options.onError(`pod ${key}: ${String(error)}`),
      );
    }
    await attempt('ip', ['netns', 'delete', sandbox.netns]);
  }

  async #add(sandbox: Sandbox, pod: Pod): Promise<readonly string[]> {
    const text = await this.cni('ADD', sandbox, { namespace: pod.metadata.namespace ?? '', name: pod.metadata.name });
    const result = JSON.parse(text) as { readonly ips?: readonly { readonly address: string }[] };
    const addresses = (result.ips ?? []).flatMap(({ address }) => address.split('/')[0] ?? []);
    if (addresses.length === 0) throw new CniError('ADD', 0, `the result has no address: ${text}`);
    return addresses;
  }

  /** Calls the plugin as kubelet's runtime does (CNI spec: environment, configuration on standard input). Returns what it printed. */
  async cni(
    command: string,
    sandbox: Sandbox,
    pod: { readonly namespace: string; readonly name: string },
  ): Promise<string> {
    const { node } = sandbox;
    const config = JSON.stringify({
      cniVersion: sandbox.cniVersion,
      name: 'weir',
      type: 'weir-cni',
      socket: node.socket,
    });
    const output = await attempt('nsenter', [`--net=${netnsPath(node.netns)}`, this.#options.cni], {
      stdin: config,
      env: {
        CNI_COMMAND: command,
        CNI_CONTAINERID: sandbox.containerId,
        CNI_NETNS: netnsPath(sandbox.netns),
        CNI_IFNAME: 'eth0',
        CNI_PATH: '/opt/cni/bin',
        CNI_ARGS: `IgnoreUnknown=1;K8S_POD_NAMESPACE=${pod.namespace};K8S_POD_NAME=${pod.name};K8S_POD_INFRA_CONTAINER_ID=${sandbox.containerId};K8S_POD_UID=${sandbox.uid}`,
      },
    });
    if (output.code !== 0) throw new CniError(command, output.code, output.stdout.trim() || output.stderr.trim());
    return output.stdout;
  }

  async #report(pod: Pod, node: KubeletNode, addresses: readonly string[]): Promise<void> {
    const now = new Date().toISOString();
    const ready = ['Initialized', 'Ready', 'ContainersReady', 'PodScheduled'].map((type) => ({
      type,
      status: 'True',
      lastTransitionTime: now,
    }));
    await this.#patchStatus(pod, {
      phase: 'Running',
      hostIP: node.addresses[0],
      hostIPs: node.addresses.map((ip) => ({ ip })),
      podIP: addresses[0],
      podIPs: addresses.map((ip) => ({ ip })),
      startTime: now,
      conditions: ready,
      containerStatuses: (pod.spec?.containers ?? []).map(({ name }) => ({
        name,
        ready: true,
        started: true,
        restartCount: 0,
        image: 'pod',
        imageID: 'pod',
        state: { running: { startedAt: now } },
      })),
    });
  }

  async #failed(pod: Pod, message: string): Promise<void> {
    const now = new Date().toISOString();
    await this.#patchStatus(pod, {
      phase: 'Pending',
      conditions: [
        { type: 'Ready', status: 'False', reason: 'FailedCreatePodSandBox', message, lastTransitionTime: now },
      ],
    });
  }

  async #patchStatus(pod: Pod, status: object): Promise<void> {
    const response = await fetch(`${this.#path(pod)}/status`, {
      method: 'PATCH',
      headers: { 'content-type': 'application/merge-patch+json', 'user-agent': 'weir-test-kubelet' },
      body: JSON.stringify({ status }),
    });
    if (!response.ok && response.status !== 404)
      throw new Error(`status of pod ${keyOf(pod)}: ${response.status} ${await response.text()}`);
  }

  /** The pod has ended: takes the object away, as kubelet does after the grace period. */
  async #forget(pod: Pod): Promise<void> {
    const response = await fetch(this.#path(pod), {
      method: 'DELETE',
      headers: { 'content-type': 'application/json', 'user-agent': 'weir-test-kubelet' },
      body: JSON.stringify({
        apiVersion: 'v1',
        kind: 'DeleteOptions',
        gracePeriodSeconds: 0,
        preconditions: { uid: pod.metadata.uid },
      }),
    });
    if (!response.ok && response.status !== 404 && response.status !== 409)
      throw new Error(`deleting pod ${keyOf(pod)}: ${response.status} ${await response.text()}`);
  }

  #path(pod: Pod): string {
    return `${this.#options.apiUrl}/api/v1/namespaces/${pod.metadata.namespace ?? 'default'}/pods/${pod.metadata.name}`;
  }
}
