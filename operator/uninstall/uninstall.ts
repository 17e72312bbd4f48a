/**
 * `operator.mjs uninstall`: takes Weir out of the cluster before its workloads are deleted (the chart's pre-delete hook).
 *
 *   1. no operator runs          2. the DaemonSet asks its agents to clear their nodes     3. each Ready node's agent has
 *   4. what Weir derived is deleted, and its conditions are removed from policies
 *
 * Guarantees: nothing derived is deleted before every Ready node that has an agent is clear, so that no kernel enforces
 * rules that the API does not hold; what cannot be done in time is named with its nodes; a second run goes on where the
 * first one ended, and succeeds where nothing is left. Policies and CRDs stay, and so does what others made of the kinds
 * that Weir shares with Cilium.
 */
import {
  heartbeatName,
  type KubeClient,
  type KubeObject,
  type NodePolicyStatus,
  type Resource,
  resources,
} from '@weir/kube';
import { delay } from '@weir/process/delay';
import { UninstallError } from '../errors.ts';
import { absentIsNothing, deleteDerived, withdrawStatuses } from './objects.ts';

/** On the DaemonSet: agents that see it clear their node. The value is the time of the request. */
export const UNINSTALL_ANNOTATION = 'weir.dev/uninstall';
/** The same value, on a NodePolicyStatus: that node is clear; on the DaemonSet: all nodes were. */
export const REMOVED_ANNOTATION = 'weir.dev/removed';

const FIELD_MANAGER = 'weir-uninstall';

export interface UninstallOptions {
  readonly client: KubeClient;
  readonly namespace: string;
  readonly daemonSet: string;
  readonly deployment: string;
  readonly lease: string;
  /** Milliseconds for all of it. */
  readonly timeoutMs: number;
  readonly log: (message: string) => void;
  /** Milliseconds between two looks. Default 500. */
  readonly pollMs?: number;
}

interface Workload extends KubeObject {
  readonly spec?: {
    readonly replicas?: number;
    readonly selector?: { readonly matchLabels?: Readonly<Record<string, string>> };
  };
}

/** Throws UninstallError when a step could not be ended in time, ApiError when the API server refuses. */
export async function uninstall(options: UninstallOptions): Promise<void> {
  await new Uninstall(options).run();
}

class Uninstall {
  readonly #options: UninstallOptions;
  readonly #deadline: number;

  constructor(options: UninstallOptions) {
    this.#options = options;
    this.#deadline = performance.now() + options.timeoutMs;
  }

  async run(): Promise<void> {
    const { client, log, namespace, lease } = this.#options;
    await this.#stopOperator();
    await this.#clearNodes();
    await deleteDerived(client, log);
    for (const name of [lease, heartbeatName(lease)])
      await absentIsNothing(client.delete(resources.Lease, name, namespace));
    await withdrawStatuses(client, log, () => this.#left > 0);
    log('Weir was removed from this cluster: policies and CustomResourceDefinitions stay');
  }

  async #stopOperator(): Promise<void> {
    const { client, namespace, deployment: name, log } = this.#options;
    const deployment = await this.#workload(resources.Deployment, name);
    if (deployment === undefined) {
      log(`there is no Deployment ${namespace}/${name}`);
      return;
    }
    if (deployment.spec?.replicas !== 0) {
      const change: Workload = { ...identified(deployment, 'Deployment'), spec: { replicas: 0 } };
      await client.apply(resources.Deployment, change, { fieldManager: FIELD_MANAGER, force: true });
      log(`Deployment ${namespace}/${name} is scaled to 0`);
    }
    await this.#until(async () => {
      const ready = await this.#readyNodes();
      // Of a node that is down nobody hears whether the pod has ended; it cannot write either.
      const running = (await this.#podsOf(deployment)).filter(({ node }) => node === undefined || ready.has(node));
      if (running.length === 0) return undefined;
      return `operator pods still run: ${running.map((pod) => `${pod.name} on ${pod.node ?? 'no node yet'}`).join(', ')}; end them: kubectl -n ${namespace} delete pod ${running.map((pod) => pod.name).join(' ')}`;
    });
  }

  async #clearNodes(): Promise<void> {
    const { client, namespace, daemonSet: name, log } = this.#options;
    const daemonSet = await this.#workload(resources.DaemonSet, name);
    if (daemonSet === undefined) {
      log(`there is no DaemonSet ${namespace}/${name}: no agent is asked`);
      return;
    }
    const { annotations = {} } = daemonSet.metadata;
    const mark = annotations[UNINSTALL_ANNOTATION] ?? new Date().toISOString();
    if (annotations[REMOVED_ANNOTATION] === mark) {
      log('the nodes are clear already');
      return;
    }
    const annotate = async (extra: Record<string, string>): Promise<void> => {
      const object = identified(daemonSet, 'DaemonSet');
      const metadata = { ...object.metadata, annotations: { [UNINSTALL_ANNOTATION]: mark, ...extra } };
      await client.apply(resources.DaemonSet, { ...object, metadata }, { fieldManager: FIELD_MANAGER, force: true });
    };
    await annotate({});
    log(`agents are asked to clear their nodes (${mark})`);
    const logged = new Set<string>();
    await this.#until(async () => {
      const { clear, missing } = await this.#cleared(daemonSet, mark);
      for (const node of clear) if (!logged.has(node)) log(`node ${node} is clear`);
      for (const node of clear) logged.add(node);
      if (missing.length === 0) return undefined;
      return `these nodes are not clear: ${missing.join('; ')}. Look at the agent's log there (kubectl -n ${namespace} logs POD), or run the agent's subcommand "cleanup" on the node and delete its NodePolicyStatus; then uninstall again. Nothing that Weir derived has been deleted`;
    });
    await annotate({ [REMOVED_ANNOTATION]: mark });
  }

  /** Ready nodes that have an agent, or had one that left its report. */
  async #cleared(daemonSet: Workload, mark: string): Promise<{ clear: string[]; missing: string[] }> {
    const ready = await this.#readyNodes();
    const agents = new Map<string, string>();
    for (const { name, node } of await this.#podsOf(daemonSet)) if (node !== undefined) agents.set(node, name);
    const reports = new Map<string, NodePolicyStatus>();
    for (const report of await this.#list(resources.NodePolicyStatus)) reports.set(report.metadata.name, report);
    const clear: string[] = [];
    const missing: string[] = [];
    for (const node of [...ready].sort()) {
      const agent = agents.get(node);
      const report = reports.get(node);
      if (report?.metadata.annotations?.[REMOVED_ANNOTATION] === mark) clear.push(node);
      else if (agent !== undefined) missing.push(`${node} (agent pod ${agent} has not confirmed it)`);
      else if (report !== undefined) missing.push(`${node} (no agent runs there)`);
    }
    return { clear, missing };
  }

  async #readyNodes(): Promise<ReadonlySet<string>> {
    const nodes = await this.#list(resources.KubeNode);
    const ready = nodes.filter(({ status }) =>
      status?.conditions?.some((c) => c.type === 'Ready' && c.status === 'True'),
    );
    return new Set(ready.map(({ metadata }) => metadata.name));
  }

  async #podsOf({ spec }: Workload): Promise<{ readonly name: string; readonly node: string | undefined }[]> {
    const { namespace } = this.#options;
    const labels = Object.entries(spec?.selector?.matchLabels ?? {});
    const labelSelector = labels.map(([key, value]) => `${key}=${value}`).join(',');
    const { items } = await this.#options.client.list(resources.Pod, { namespace, labelSelector });
    return items
      .filter(({ status }) => status?.phase !== 'Succeeded' && status?.phase !== 'Failed')
      .map(({ metadata, spec: pod }) => ({ name: metadata.name, node: pod?.nodeName }));
  }

  async #list<T extends KubeObject>(resource: Resource<T>): Promise<readonly T[]> {
    return (await absentIsNothing(this.#options.client.list(resource)))?.items ?? [];
  }

  async #workload(resource: Resource<KubeObject>, name: string): Promise<Workload | undefined> {
    return absentIsNothing(this.#options.client.get(resource, name, this.#options.namespace));
  }

  /** Looks until there is no obstacle. Throws UninstallError with the last one. */
  async #until(obstacle: () => Promise<string | undefined>): Promise<void> {
    for (;;) {
      const found = await obstacle();
      if (found === undefined) return;
      if (this.#left <= 0) throw new UninstallError(`not done within ${this.#options.timeoutMs / 1000} s: ${found}`);
      await delay(Math.min(this.#options.pollMs ?? 500, this.#left));
    }
  }

  get #left(): number {
    return this.#deadline - performance.now();
  }
}

/** Names this very object: an apply with it changes no other one of the name, and makes none. */
function identified({ metadata: { name, namespace, uid } }: KubeObject, kind: string): KubeObject {
  return {
    apiVersion: 'apps/v1',
    kind,
    metadata: {
      name,
      ...(namespace === undefined ? {} : { namespace }),
      ...(uid === undefined ? {} : { uid }),
    },
  };
}
