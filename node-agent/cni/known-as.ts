import { labelsKey, podIdentityLabels } from '@weir/labels';
import type { StateDB } from '@weir/statedb';
import type { PodRef } from '../core/pod-events.ts';
import type { Tables } from '../core.ts';
import { tableKey } from '../create-tables.ts';
import type { ContainerPort } from '../tables.ts';

export interface KnownAsOptions {
  readonly db: StateDB;
  readonly tables: Pick<Tables, 'identities' | 'localPods' | 'namespaces' | 'remoteEndpoints'>;
  /** Part of every identity. */
  readonly clusterName: string;
}

/** What other nodes judge an address by: the identity and the named ports that a slice says of it. Two of one text are the same to them. */
export class KnownAs {
  readonly #options: KnownAsOptions;

  constructor(options: KnownAsOptions) {
    this.#options = options;
  }

  /** What slices say of the address; undefined: nothing, or several things. */
  address(address: string): string | undefined {
    const { db, tables } = this.#options;
    using snapshot = db.read();
    const [row, ...more] = snapshot.list(tables.remoteEndpoints, 'address', address);
    return row === undefined || more.length > 0 ? undefined : textOf(row.identity, row.namedPorts);
  }

  /** What a slice will say of a pod of this node; undefined: its labels have no identity yet, or the pod is not known. */
  pod({ namespace, name, uid }: PodRef): string | undefined {
    const { db, tables, clusterName: cluster } = this.#options;
    using snapshot = db.read();
    const pod = snapshot.get(tables.localPods, tableKey.pod(namespace, name));
    const labels = snapshot.get(tables.namespaces, namespace)?.labels;
    if (pod === undefined || labels === undefined || pod.uid !== uid || pod.portExcess !== undefined) return undefined;
    const wanted = podIdentityLabels({
      ...{ namespace, namespaceLabels: labels, podLabels: pod.labels, serviceAccount: pod.serviceAccount, cluster },
    });
    // Of several the lowest counts.
    const [identity] = snapshot.list(tables.identities, 'labels', labelsKey(wanted));
    return identity === undefined ? undefined : textOf(identity.id, pod.namedPorts);
  }
}

function textOf(identity: number, ports: readonly ContainerPort[]): string | undefined {
  if (identity === 0) return undefined;
  const names = ports.map(({ name, port, protocol }) => `${name}=${port}/${protocol}`);
  return [identity, ...names.sort()].join(' ');
}
