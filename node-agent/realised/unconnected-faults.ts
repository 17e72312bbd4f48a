import type { StateDB, Table } from '@weir/statedb';
import type { Model } from '../derive/index.ts';
import type { PolicyRow } from '../tables.ts';
import { namesOf } from './failure-text.ts';
import { type Fault, generationsOf } from './policy-failures.ts';

/**
 * How long a pod may have addresses and no endpoint: a runtime tells of them when ADD has ended, the API server and we hear it in any order. And
 * how long an interface may be gone before DEL comes.
 */
const UNCONNECTED_AFTER_MS = 10_000;

/** A pod that has no interface of ours. Key: `pod`. */
interface Unconnected {
  /** `namespace/name`. */
  readonly pod: string;
  readonly uid: string;
  /** The one that it had, which is gone; undefined: another plugin connected it. */
  readonly interfaceName: string | undefined;
  /** Milliseconds. */
  readonly since: number;
}

export interface UnconnectedFaultsOptions {
  readonly db: StateDB;
  readonly model: Model;
  /** Milliseconds; any clock that only grows. */
  readonly now: () => number;
}

/** Pods that have no interface of ours, once that lasts: table `unconnectedPods`. */
export class UnconnectedFaults {
  readonly #options: UnconnectedFaultsOptions;
  readonly #table: Table<Unconnected>;

  constructor(options: UnconnectedFaultsOptions) {
    this.#options = options;
    this.#table = options.db.table<Unconnected>({ name: 'unconnectedPods', key: ({ pod }) => pod });
  }

  /** One fault for each policy that selects such pods. */
  settle(): Fault[] {
    const selected = new Map<string, { uid: string; generation: number; pods: Unconnected[] }>();
    for (const [pod, policies] of this.#lasting())
      for (const { uid, generation } of policies) {
        const known = selected.get(uid);
        if (known === undefined) selected.set(uid, { uid, generation, pods: [pod] });
        else known.pods.push(pod);
      }
    return Array.from(selected.values(), ({ pods, ...policy }) => ({
      of: generationsOf([policy]),
      reason: 'PodNotConnected',
      message: notConnectedText(pods),
    }));
  }

  #lasting(): (readonly [Unconnected, readonly Pick<PolicyRow, 'uid' | 'generation'>[]])[] {
    const { model, db, now } = this.#options;
    const at = now();
    return db.write([this.#table], (txn) => {
      const found = Array.from(model.unconnected(), ([{ pod: of, endpoint }, policies]) => {
        const pod = `${of.namespace}/${of.name}`;
        const known = txn.get(this.#table, pod);
        const since = known?.uid === of.uid ? known.since : at;
        const row = { pod, uid: of.uid, interfaceName: endpoint?.interfaceName, since };
        const same = known?.since === since && known.interfaceName === row.interfaceName;
        if (!same) txn.upsert(this.#table, row);
        return [same ? known : row, policies] as const;
      });
      const pods = new Set(found.map(([{ pod }]) => pod));
      for (const { pod } of txn.all(this.#table)) if (!pods.has(pod)) txn.delete(this.#table, pod);
      return found.filter(([{ since }]) => at - since >= UNCONNECTED_AFTER_MS);
    });
  }
}

function notConnectedText(pods: readonly Unconnected[]): string {
  const gone = pods.filter(({ interfaceName }) => interfaceName !== undefined);
  const foreign = pods.filter(({ interfaceName }) => interfaceName === undefined);
  const [its, is, has, it] =
    gone.length === 1
      ? ['its interface', 'is', 'it has', 'the pod']
      : ['their interfaces', 'are', 'they have', 'the pods'];
  const names = namesOf(gone.map(({ interfaceName }) => interfaceName ?? ''));
  return [
    foreign.length === 0
      ? []
      : `${podsText(foreign)}: connected by another network plugin, or before Weir, so that nothing is enforced there; see that \`weir status\` on the node says \`installed\` of CNI, then delete the pods, so that they are recreated`,
    gone.length === 0
      ? []
      : `${podsText(gone)}: ${its} ${names} ${is} gone from the node, so that ${has} no network; delete ${it}, so that ${gone.length === 1 ? 'it is' : 'they are'} recreated`,
  ]
    .flat()
    .join('; ');
}

function podsText(pods: readonly Unconnected[]): string {
  return `${pods.length === 1 ? 'pod' : 'pods'} ${namesOf(pods.map(({ pod }) => pod))}`;
}
