import type { LabelMap } from '@weir/labels';
import type { Tables } from '../core.ts';
import { tableKey } from '../create-tables.ts';
import type { EndpointRow, LocalPodRow } from '../tables.ts';
import type { Identities } from './identities.ts';
import type { Inputs } from './inputs.ts';

/** A pod of this node that has no interface of ours: nothing is enforced for it. */
export interface UnconnectedPod {
  readonly pod: LocalPodRow;
  /** Its endpoint, whose interface is gone; undefined: it never had one. */
  readonly endpoint: EndpointRow | undefined;
  /** Of the cluster. */
  readonly identity: number;
  readonly labels: LabelMap;
}

export interface UnconnectedPodsOptions {
  readonly tables: Pick<Tables, 'localPods' | 'endpoints' | 'remoteEndpoints'>;
  readonly inputs: Pick<Inputs, 'snapshot'>;
  readonly identities: Pick<Identities, 'get'>;
}

/**
 * Pods of this node that have addresses and no endpoint, so that another network plugin has connected them, or one whose interface is gone. A pod on the host's network, one
 * that has ended and one whose identity is not known yet are none of them.
 */
export class UnconnectedPods {
  readonly #options: UnconnectedPodsOptions;

  constructor(options: UnconnectedPodsOptions) {
    this.#options = options;
  }

  *values(): Generator<UnconnectedPod> {
    const { tables, inputs, identities } = this.#options;
    for (const pod of inputs.snapshot.all(tables.localPods)) {
      if (pod.addresses.length === 0) continue;
      const endpoint = this.#endpoint(pod);
      if (endpoint !== undefined && endpoint.gone === undefined) continue;
      const listed = inputs.snapshot.get(tables.remoteEndpoints, tableKey.pod(pod.namespace, pod.name));
      if (listed === undefined || (listed.podUid !== undefined && listed.podUid !== (pod.mirrorUid ?? pod.uid)))
        continue;
      const row = identities.get(listed.identity);
      if (row !== undefined) yield { pod, endpoint, identity: row.id, labels: row.labels };
    }
  }

  /** The pod's endpoint; one whose interface is gone only where there is no other. */
  #endpoint({ namespace, name, uid, addresses }: LocalPodRow): EndpointRow | undefined {
    const { tables, inputs } = this.#options;
    const own = [...inputs.snapshot.list(tables.endpoints, 'pod', tableKey.pod(namespace, name))].filter(
      ({ pod }) => pod?.uid === undefined || pod.uid === uid,
    );
    // One that was found in the kernel may not know its pod yet.
    const found = addresses.flatMap((address) => [...inputs.snapshot.list(tables.endpoints, 'address', address)]);
    return [...own, ...found].find(({ gone }) => gone === undefined) ?? own[0];
  }
}
