/**
 * What has been asked for, and what of it may be in force: the judge's side of a run. It knows nothing of the cluster, and does nothing.
 *
 * A version counts from just before it was asked for. It ends
 * - for a policy: when `Programmed` was seen to be True for a later generation (docs/status.md);
 * - for everything: when all was calm (settle.ts): no fault, every status settled, every node's kernel up to date.
 * A new pod is also `unknown` until the next calm; so is one that changes, where an agent started that is not told all. An address never makes a pod out of another one: who had it before does not count.
 */
import type { Who } from '../judge/evaluate.ts';
import { type Labels, NAMESPACE_KEY, NAMESPACE_LABELS, type PolicyName, type Rule } from './policy.ts';
import { History } from './versions.ts';

/** As whom a pod may be judged; `open`: its enforcement was taken away by hand, and nobody need have seen it yet. */
export type PodState = Extract<Who, { kind: 'pod' | 'unknown' }> | { readonly kind: 'open' };

export interface PolicyVersion {
  readonly generation: number;
  /** Undefined: the policy is not there. */
  readonly rule: Rule | undefined;
}

export interface PolicyModel extends PolicyName {
  readonly versions: History<PolicyVersion>;
  uid?: string;
}

export interface HostModel {
  readonly id: number;
  readonly name: string;
  readonly states: History<Who | PodState>;
  /** From here on it may be going: packets to and from it need not arrive. */
  endsAt: number;
  /** Its node's flows of before were lost: nobody knows who opened its connections. */
  flowsLostUntil: number;
}

export interface PodModel extends HostModel {
  readonly namespace: string;
  /** Node number, from 1. */
  readonly node: number;
  labels: Labels;
  address?: string;
  /** Of IPv6. */
  address6?: string | undefined;
}

export class World {
  readonly namespaces = new Map<string, Labels>();
  readonly hosts = new Map<number, HostModel | PodModel>();
  readonly policies: PolicyModel[] = [];
  #hosts = 0;
  /** Since the last calm an agent has started that was not told all. */
  #deaf = false;

  addHost(name: string, state: Who): HostModel {
    this.#hosts += 1;
    const host = {
      id: this.#hosts,
      name,
      states: new History<Who | PodState>(state),
      endsAt: Number.POSITIVE_INFINITY,
      flowsLostUntil: Number.NEGATIVE_INFINITY,
    };
    this.hosts.set(host.id, host);
    return host;
  }

  addPod(spec: Pick<PodModel, 'name' | 'namespace' | 'node' | 'labels'>, at: number): PodModel {
    const pod = Object.assign(this.addHost(spec.name, this.#identity(spec)), spec);
    pod.states.beside({ kind: 'unknown' }, at);
    return pod;
  }

  /** Pods that are wanted. */
  pods(): readonly PodModel[] {
    return [...this.hosts.values()].filter(
      (host) => 'node' in host && host.endsAt === Number.POSITIVE_INFINITY,
    ) as PodModel[];
  }

  relabel(pod: PodModel, labels: Labels, at: number): void {
    pod.labels = labels;
    this.#change(pod, at);
  }

  relabelNamespace(name: string, labels: Labels, at: number): void {
    this.namespaces.set(name, labels);
    for (const pod of this.pods()) if (pod.namespace === name) this.#change(pod, at);
  }

  #change(pod: PodModel, at: number): void {
    pod.states.begin(this.#identity(pod), at);
    if (this.#deaf) pod.states.beside({ kind: 'unknown' }, at);
  }

  /** An agent starts and is not told all for a while: pods that changed since the last calm may be unknown there. */
  deaf(at: number): void {
    this.#deaf = true;
    for (const pod of this.pods())
      if (pod.states.possible(at, at).length > 1) pod.states.beside({ kind: 'unknown' }, at);
  }

  /** Labels of a pod's identity, as selectors see them. */
  identityLabels({ namespace, labels }: Pick<PodModel, 'namespace' | 'labels'>): Labels {
    const own = Object.entries(this.namespaces.get(namespace) ?? {});
    return {
      ...labels,
      [NAMESPACE_KEY]: namespace,
      ...Object.fromEntries(own.map(([key, value]) => [`${NAMESPACE_LABELS}${key}`, value])),
    };
  }

  #identity(pod: Pick<PodModel, 'namespace' | 'labels'>): Who {
    return { kind: 'pod', labels: this.identityLabels(pod) };
  }

  /** Policies that are wanted. */
  wanted(): readonly PolicyModel[] {
    return this.policies.filter(({ versions }) => versions.newest.rule !== undefined);
  }

  addPolicy(name: PolicyName, rule: Rule, at: number): PolicyModel {
    const versions = new History<PolicyVersion>({ generation: 0, rule: undefined });
    versions.begin({ generation: 1, rule }, at);
    const policy = { ...name, versions };
    this.policies.push(policy);
    return policy;
  }

  /** `rule` undefined: it is deleted. */
  editPolicy({ versions }: PolicyModel, rule: Rule | undefined, at: number): void {
    versions.begin({ generation: versions.newest.generation + 1, rule }, at);
  }

  /** `Programmed` was seen to be True for this generation. */
  programmed(uid: string, generation: number, at: number): void {
    const policy = this.policies.find((each) => each.uid === uid);
    policy?.versions.settle(at, (version) => version.generation >= generation);
  }

  /** The flows that pods of the node have until the next calm are lost. */
  flowsLost(node: number): void {
    for (const pod of this.pods()) if (pod.node === node) pod.flowsLostUntil = Number.POSITIVE_INFINITY;
  }

  /** Only what is wanted counts from now on. */
  calm(at: number): void {
    this.#deaf = false;
    for (const host of this.hosts.values()) {
      host.states.settle(at);
      host.flowsLostUntil = Math.min(host.flowsLostUntil, at);
    }
    for (const { versions } of this.policies) versions.settle(at);
  }

  /** Forgets what no packet sent after `at` can depend on. */
  forget(at: number): void {
    for (const [id, host] of this.hosts) {
      host.states.forget(at);
      if (host.endsAt < at) this.hosts.delete(id);
    }
    for (const { versions } of this.policies) versions.forget(at);
    const kept = this.policies.filter(({ versions }) =>
      versions.possible(at, Number.POSITIVE_INFINITY).some(({ rule }) => rule !== undefined),
    );
    this.policies.splice(0, this.policies.length, ...kept);
  }
}
