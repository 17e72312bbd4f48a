/** Measures, from API objects alone, how long a policy took from its write until the last node had it in its kernel. */
import {
  type CiliumPolicyObject,
  createKubeClient,
  createReflector,
  type NodePolicyStatus,
  type Reflector,
  resources,
} from '@weir/kube';

export class EnforcementClock {
  readonly #written = new Map<string, { readonly uid: string; readonly generation: number; readonly at: number }>();
  /** `uid/generation` -> node -> when its kernel had it, as the node says. */
  readonly #reported = new Map<string, Map<string, number>>();
  readonly #reflectors: readonly Reflector[];

  constructor(kubeconfig: string) {
    const client = createKubeClient({ kubeconfig, userAgent: 'weir-story' });
    const policies = [resources.CiliumNetworkPolicy, resources.CiliumClusterwideNetworkPolicy].map((resource) =>
      createReflector<CiliumPolicyObject>({
        client,
        resource,
        sink: {
          replace: (items) => {
            for (const item of items) this.#policy(item);
          },
          upsert: (item) => this.#policy(item),
          delete: () => undefined,
        },
      }),
    );
    const nodes = createReflector<NodePolicyStatus>({
      client,
      resource: resources.NodePolicyStatus,
      sink: {
        replace: (items) => {
          for (const item of items) this.#node(item);
        },
        upsert: (item) => this.#node(item),
        delete: () => undefined,
      },
    });
    this.#reflectors = [...policies, nodes];
  }

  start(): void {
    for (const reflector of this.#reflectors) reflector.start();
  }

  async stop(): Promise<void> {
    await Promise.all(this.#reflectors.map((reflector) => reflector.stop()));
  }

  /** Milliseconds from the write of a policy's present generation; NaN when no node has said when. */
  enforcedAfter(name: string): number {
    const written = this.#written.get(name);
    if (written === undefined) return Number.NaN;
    const reports = this.#reported.get(`${written.uid}/${written.generation}`);
    return reports === undefined || reports.size === 0
      ? Number.NaN
      : Math.max(0, Math.max(...reports.values()) - written.at);
  }

  #policy(policy: CiliumPolicyObject): void {
    const { name, uid = '', generation = 0 } = policy.metadata;
    const known = this.#written.get(name);
    if (known?.uid === uid && known.generation === generation) return;
    this.#written.set(name, { uid, generation, at: Date.now() });
  }

  #node(report: NodePolicyStatus): void {
    for (const [uid, { generation, at }] of Object.entries(report.status?.policies ?? {})) {
      const key = `${uid}/${generation}`;
      const nodes = this.#reported.get(key) ?? new Map<string, number>();
      if (at !== undefined) nodes.set(report.metadata.name, at);
      this.#reported.set(key, nodes);
    }
  }
}
