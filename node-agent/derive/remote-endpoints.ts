import { parsePrefix, prefixContains } from '@weir/net';
import { query, type StateDB } from '@weir/statedb';
import type { Tables } from '../core.ts';
import { tableKey } from '../create-tables.ts';
import type { EndpointRow, RemoteEndpointRow } from '../tables.ts';
import type { Identities } from './identities.ts';
import type { Inputs } from './inputs.ts';
import type { IpcacheDeriver } from './ipcache.ts';
import type { Pace } from './pace.ts';
import type { PeerPortNames } from './peer-port-names.ts';
import { hostPrefix, prefixOrNone } from './prefixes.ts';
import { Rows } from './working.ts';

/** What a slice says of a pod, and whom the pod is judged as. */
interface Believed {
  /** `namespace/name` of the pod. */
  readonly key: string;
  readonly row: RemoteEndpointRow;
  /** 0: nobody. */
  readonly identity: number;
  /** Of the identity: a number may be given to other labels later. */
  readonly labelsKey: string | undefined;
}

/** A pod of this node whose endpoint has gone before its object. */
interface Detached {
  readonly key: string;
  readonly podUid: string;
}

export interface RemoteEndpointsOptions {
  readonly db: StateDB;
  readonly nodeName: string;
  readonly tables: Pick<Tables, 'remoteEndpoints' | 'localPods' | 'endpoints' | 'nodes'>;
  readonly inputs: Pick<Inputs, 'snapshot'>;
  readonly identities: Pick<Identities, 'get' | 'settled'>;
  readonly ipcache: Pick<IpcacheDeriver, 'setRemote'>;
  readonly portNames: Pick<PeerPortNames, 'set'>;
  readonly pace: Pace;
}

/**
 * The identity that each pod of the slices is judged by. Slices and identities come by watches of their own, in any order. Guarantees:
 * a number is never used whose labels are not known; a pod that moves to such a number keeps the identity that it had until then, so that
 * its flows see no gap. Only the same pod does, at addresses that it had, and only while the old identity is what it was: anybody else is
 * unknown meanwhile.
 *
 * Of pods on this node the node itself knows better than a slice: one that has neither an endpoint nor, connected by another plugin, its
 * object with that address, is gone, and its address is unknown, whatever the slices go on saying.
 */
export class RemoteEndpoints {
  readonly #options: RemoteEndpointsOptions;
  readonly #believed: Rows<string, Believed>;
  readonly #detached: Rows<string, Detached>;
  readonly #dirty = new Set<string>();

  constructor(options: RemoteEndpointsOptions) {
    this.#options = options;
    this.#believed = new Rows<string, Believed>(
      options.db,
      {
        name: 'believedEndpoints',
        key: ({ key }) => key,
        indexes: [{ name: 'identity', keys: ({ identity }) => [tableKey.identity(identity)] }],
      },
      (key) => key,
    );
    this.#detached = new Rows<string, Detached>(
      options.db,
      { name: 'detachedPods', key: ({ key }) => key },
      (key) => key,
    );
  }

  endpointChanged({ namespace, name }: Pick<RemoteEndpointRow, 'namespace' | 'name'>): void {
    this.#dirty.add(tableKey.pod(namespace, name));
  }

  /** An endpoint of this node has come or gone. */
  localEndpointChanged({ pod }: EndpointRow, deleted: boolean): void {
    if (pod === undefined) return;
    const key = tableKey.pod(pod.namespace, pod.name);
    const podUid = pod.uid ?? this.#options.inputs.snapshot.get(this.#options.tables.localPods, key)?.uid;
    if (deleted && podUid !== undefined) this.#detached.set({ key, podUid });
    else this.#detached.delete(key);
    this.#dirty.add(key);
  }

  /** This node's addresses or pod networks have changed: it may be another node's pods that are its own now. */
  ownNodeChanged(): void {
    const { inputs, tables } = this.#options;
    inputs.snapshot.visit(query.all(tables.remoteEndpoints), (row) => {
      this.endpointChanged(row);
    });
  }

  /** The identity has changed: so may pods of which the slice says it, and those that keep it. */
  identityChanged(identity: number): void {
    const { inputs, tables } = this.#options;
    const key = tableKey.identity(identity);
    inputs.snapshot.visit(query.list(tables.remoteEndpoints, 'identity', key), (row) => {
      this.endpointChanged(row);
    });
    for (const believed of this.#believed.list('identity', key)) this.#dirty.add(believed.key);
  }

  async settle(): Promise<void> {
    const { pace } = this.#options;
    for (const key of this.#dirty) {
      this.#compute(key);
      this.#dirty.delete(key);
      if (pace.due()) await pace.yieldNow();
    }
  }

  #compute(key: string): void {
    const { inputs, tables, identities, ipcache, portNames } = this.#options;
    const listed = inputs.snapshot.get(tables.remoteEndpoints, key);
    const gone = listed !== undefined && this.#gone(listed, key);
    const row = gone ? { ...listed, identity: 0 } : listed;
    // Names count as soon as they are listed, whoever the pod is: a number may be denied to unknown peers too.
    portNames.set(`remote ${key}`, row?.identity ?? 0, row?.namedPorts ?? [], row?.addresses ?? []);
    const before = this.#believed.get(key);
    if (row === undefined) {
      // No slice speaks of the pod any more, and it is gone itself.
      const detached = this.#detached.get(key);
      if (detached !== undefined && inputs.snapshot.get(tables.localPods, key)?.uid !== detached.podUid)
        this.#detached.delete(key);
      this.#believed.delete(key);
      ipcache.setRemote(undefined, key);
      portNames.set(`kept ${key}`, 0, [], []);
      return;
    }
    const settled = identities.settled(row.identity);
    const kept = !gone && !settled && before !== undefined && this.#mayKeep(row, before) ? before : undefined;
    const identity = settled ? row.identity : (kept?.identity ?? 0);
    const labelsKey = settled ? identities.get(identity)?.labelsKey : kept?.labelsKey;
    this.#believed.set({ key, row, identity, labelsKey });
    ipcache.setRemote(identity === row.identity ? row : { ...row, identity }, key);
    portNames.set(`kept ${key}`, kept?.identity ?? 0, kept === undefined ? [] : row.namedPorts, row.addresses);
  }

  /** Whether the slices speak of a pod of this node that is not here any more. */
  #gone(row: RemoteEndpointRow, key: string): boolean {
    const { inputs, tables, nodeName } = this.#options;
    const { snapshot } = inputs;
    const self = snapshot.get(tables.nodes, nodeName);
    const pod = snapshot.get(tables.localPods, key);
    const detached = this.#detached.get(key);
    if (detached !== undefined && pod?.uid !== detached.podUid) this.#detached.delete(key);
    if (self === undefined) return false;
    const networks = self.podCidrs.flatMap((cidr) => prefixOrNone(cidr) ?? []).map((cidr) => parsePrefix(cidr));
    const own = (address: string): boolean => {
      const host = hostPrefix(address);
      return host !== undefined && networks.some((network) => prefixContains(network, parsePrefix(host)));
    };
    const here = self.addresses.includes(row.node);
    return row.addresses.some((address) => {
      if (!here && !own(address)) return false;
      for (const { pod: of } of snapshot.list(tables.endpoints, 'address', address))
        if (of !== undefined && tableKey.pod(of.namespace, of.name) === key) return false;
      if (pod?.addresses.includes(address) !== true || pod.uid === detached?.podUid) return true;
      return row.podUid !== undefined && row.podUid !== (pod.mirrorUid ?? pod.uid);
    });
  }

  /** Whether the pod may be judged as before while what it is now cannot be judged. */
  #mayKeep(row: RemoteEndpointRow, { row: former, identity, labelsKey }: Believed): boolean {
    const { identities } = this.#options;
    return (
      row.podUid !== undefined &&
      former.podUid === row.podUid &&
      identity !== row.identity &&
      identities.settled(identity) &&
      identities.get(identity)?.labelsKey === labelsKey &&
      row.addresses.every((address) => former.addresses.includes(address))
    );
  }
}
