/** Measures, from API objects alone, how long a policy took from its write to the last node's report that its kernel has it. */
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
  /** `uid/generation` -> node -> time of its report. */
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

  /** Milliseconds from the write of a policy's present generation to the latest first report of it; NaN when nobody reported. */
  async enforcedAfter(name: string): Promise<number> {
    const written = this.#written.get(name);
    if (written === undefined) return Number.NaN;
    const reports = this.#reported.get(`${written.uid}/${written.generation}`);
    return reports === undefined ? Number.NaN : Math.max(...reports.values()) - written.at;
  }

  #policy(policy: CiliumPolicyObject): void {
    const { name, uid = '', generation = 0 } = policy.metadata;
    const known = this.#written.get(name);
    if (known?.uid === uid && known.generation === generation) return;
    this.#written.set(name, { uid, generation, at: performance.now() });
  }

  #node(report: NodePolicyStatus): void {
    for (const [uid, { generation }] of Object.entries(report.status?.policies ?? {})) {
      const key = `${uid}/${generation}`;
      const nodes = this.#reported.get(key) ?? new Map<string, number>();
      if (!nodes.has(report.metadata.name)) nodes.set(report.metadata.name, performance.now());
      this.#reported.set(key, nodes);
    }
  }
}
