import type { LabelMap } from '@weir/labels';
import type { Tables } from '../core.ts';
import { tableKey } from '../create-tables.ts';
import type { LocalPodRow } from '../tables.ts';
import type { Identities } from './identities.ts';
import type { Inputs } from './inputs.ts';

/** A pod of this node whose interface is not ours: nothing is enforced for it. */
export interface UnconnectedPod {
  readonly pod: LocalPodRow;
  /** Of the cluster. */
  readonly identity: number;
  readonly labels: LabelMap;
}

export interface UnconnectedPodsOptions {
  readonly tables: Pick<Tables, 'localPods' | 'endpoints' | 'remoteEndpoints'>;
  readonly inputs: Pick<Inputs, 'said'>;
  readonly identities: Pick<Identities, 'get'>;
}

/**
 * Pods of this node that have addresses and no endpoint: another network plugin has connected them. A pod on the host's network, one
 * that has ended and one whose identity is not known yet are none of them.
 */
export class UnconnectedPods {
  readonly #options: UnconnectedPodsOptions;

  constructor(options: UnconnectedPodsOptions) {
    this.#options = options;
  }

  *values(): Generator<UnconnectedPod> {
    const { tables, inputs, identities } = this.#options;
    for (const pod of inputs.said.all(tables.localPods)) {
      if (pod.addresses.length === 0 || this.#connected(pod)) continue;
      const said = inputs.said.get(tables.remoteEndpoints, tableKey.pod(pod.namespace, pod.name));
      if (said === undefined || (said.podUid !== undefined && said.podUid !== (pod.mirrorUid ?? pod.uid))) continue;
      const row = identities.get(said.identity);
      if (row !== undefined) yield { pod, identity: row.id, labels: row.labels };
    }
  }

  #connected({ namespace, name, uid, addresses }: LocalPodRow): boolean {
    const { tables, inputs } = this.#options;
    for (const { pod } of inputs.said.list(tables.endpoints, 'pod', tableKey.pod(namespace, name)))
      if (pod?.uid === undefined || pod.uid === uid) return true;
    // One that was found in the kernel may not know its pod yet.
    for (const address of addresses) for (const _ of inputs.said.list(tables.endpoints, 'ipv4', address)) return true;
    return false;
  }
}
