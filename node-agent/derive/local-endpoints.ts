import { isDeepStrictEqual } from 'node:util';
import { LOCAL_ENDPOINT_BASE } from '@weir/identity';
import type { LabelMap } from '@weir/labels';
import { sameAddresses } from '@weir/net';
import { keys, query, type StateDB } from '@weir/statedb';
import type { Tables } from '../core.ts';
import { tableKey } from '../create-tables.ts';
import type { EndpointRow, LocalPodRow, NamespaceRow, RemoteEndpointRow } from '../tables.ts';
import { closesAt, type EndpointContext, type EndpointIdentity, endpointIdentity } from './identities.ts';
import type { Inputs } from './inputs.ts';
import type { IpcacheDeriver } from './ipcache.ts';
import type { Pace } from './pace.ts';
import type { PeerPortNames } from './peer-port-names.ts';
import { Rows, type RowsView } from './working.ts';

export interface LocalEndpointsOptions
  extends Pick<EndpointContext, 'clusterName' | 'identities' | 'numbers' | 'policies' | 'found' | 'now'> {
  readonly db: StateDB;
  readonly tables: Pick<Tables, 'endpoints' | 'localPods' | 'namespaces' | 'remoteEndpoints' | 'identities' | 'nodes'>;
  readonly inputs: Pick<Inputs, 'snapshot'>;
  readonly ipcache: Pick<IpcacheDeriver, 'setLocal'>;
  readonly portNames: Pick<PeerPortNames, 'set'>;
  readonly pace: Pace;
}

/** This node's endpoints and the identity of each, from endpoint, pod, namespace and identity rows. */
export class LocalEndpoints {
  readonly #options: LocalEndpointsOptions;
  readonly #context: Omit<EndpointContext, 'rules'>;
  readonly #infos: Rows<number, EndpointIdentity>;
  readonly #dirty = new Set<number>();
  readonly #podsChanged = new Set<string>();
  readonly #namespacesChanged = new Set<string>();

  constructor(options: LocalEndpointsOptions) {
    this.#options = options;
    const { db, clusterName, identities, numbers, policies, found, now, inputs, tables } = options;
    this.#context = {
      clusterName,
      identities,
      numbers,
      policies,
      found,
      now,
      pod: (key) => inputs.snapshot.get(tables.localPods, key),
      namespace: (name) => inputs.snapshot.get(tables.namespaces, name),
      listed: (row) => this.#listed(row),
    };
    this.#infos = new Rows<number, EndpointIdentity>(
      db,
      {
        name: 'localIdentities',
        key: ({ row }) => tableKey.endpoint(row.id),
        indexes: [
          { name: 'identity', keys: ({ identity }) => [tableKey.identity(identity)] },
          // Those that lose their identity by the passing of time.
          {
            name: 'closes',
            keys: (info) => {
              const at = info.ready ? closesAt(info) : undefined;
              return at === undefined ? [] : [keys.int(at)];
            },
          },
        ],
      },
      tableKey.endpoint,
    );
  }

  /** What is computed of each endpoint. */
  get infos(): RowsView<number, EndpointIdentity> {
    return this.#infos;
  }

  /** This node's own label sets that are in use, ascending by number; each by one of its endpoints. */
  *localLabels(): Generator<EndpointIdentity> {
    const first = tableKey.identity(LOCAL_ENDPOINT_BASE);
    let last: number | undefined;
    for (const info of this.#infos.select(query.lowerBound(this.#infos.table, first, 'identity'))) {
      if (info.identity !== last) yield info;
      last = info.identity;
    }
  }

  /** An endpoint that has one of this node's own label sets. */
  localLabelsOf(identity: number): EndpointIdentity | undefined {
    if (identity < LOCAL_ENDPOINT_BASE) return undefined;
    const [info] = this.#infos.list('identity', tableKey.identity(identity));
    return info;
  }

  endpointChanged({ id }: EndpointRow): void {
    this.#dirty.add(id);
  }

  podChanged({ namespace, name }: LocalPodRow): void {
    this.#podsChanged.add(tableKey.pod(namespace, name));
  }

  /** A slice that has a pod of this node, or had it, has changed. */
  sliceChanged({ namespace, name }: RemoteEndpointRow): void {
    const { inputs, tables } = this.#options;
    for (const row of inputs.snapshot.list(tables.endpoints, 'pod', tableKey.pod(namespace, name)))
      this.endpointChanged(row);
  }

  namespaceChanged({ name }: NamespaceRow): void {
    this.#namespacesChanged.add(name);
  }

  /** Whether a slice has the endpoint's pod. */
  #listed({ pod }: EndpointRow): boolean {
    const { inputs, tables } = this.#options;
    if (pod === undefined) return true;
    const slice = inputs.snapshot.get(tables.remoteEndpoints, tableKey.pod(pod.namespace, pod.name));
    return slice !== undefined && (slice.podUid === undefined || pod.uid === undefined || slice.podUid === pod.uid);
  }

  /** When an endpoint is due to be settled though nothing changes, in milliseconds of the given clock. */
  dueAt(): number | undefined {
    const [first] = this.#infos.select(query.prefix(this.#infos.table, '', 'closes'));
    return first && closesAt(first);
  }

  /**
   * Settles endpoint identities; returns the label sets of this node's own that came into use or went out of it, by number. Readers see
   * all of the old conclusions or all of the new ones.
   */
  async settle(changed: {
    readonly identities: boolean;
    readonly policies: boolean;
    /** As in `Plan`. */
    readonly rules: boolean;
  }): Promise<ReadonlyMap<number, LabelMap>> {
    const { inputs, tables, ipcache, portNames, pace } = this.#options;
    this.#spread(changed);
    const context = { ...this.#context, rules: changed.rules };
    const computed: { id: number; before: EndpointIdentity | undefined; info: EndpointIdentity | undefined }[] = [];
    for (const id of this.#dirty) {
      const row = inputs.snapshot.get(tables.endpoints, tableKey.endpoint(id));
      const before = this.#infos.get(id);
      const info = row?.gone === undefined ? row && endpointIdentity(row, before, context) : undefined;
      computed.push({ id, before, info: info && keeping(before, info) });
      if (pace.due()) await pace.yieldNow();
    }
    const concerned = new Map<number, LabelMap>();
    for (const { before, info } of computed)
      for (const one of [before, info])
        if (one && one.identity >= LOCAL_ENDPOINT_BASE) concerned.set(one.identity, one.labels);
    const inUse = (): Set<number> => new Set(concerned.keys().filter((id) => this.localLabelsOf(id) !== undefined));
    const had = inUse();
    this.#infos.write((txn) => {
      for (const { id, before, info } of computed) {
        if (info === before) continue;
        if (info === undefined) txn.delete(this.#infos.table, tableKey.endpoint(id));
        else txn.upsert(this.#infos.table, info);
      }
    });
    for (const { id, before, info } of computed) {
      if (info === before) continue;
      portNames.set(`local ${id}`, info?.identity ?? 0, info?.namedPorts ?? [], info?.row.addresses ?? []);
      const [had, addresses] = [before?.row.addresses ?? [], info?.row.addresses ?? []];
      if (before?.identity !== info?.identity || !sameAddresses(had, addresses))
        ipcache.setLocal(id, addresses, info?.identity ?? 0);
    }
    this.#dirty.clear();
    const apart = had.symmetricDifference(inUse());
    return new Map(concerned.entries().filter(([id]) => apart.has(id)));
  }

  /** Marks the endpoints that changed pods, namespaces, identities and policies touch. */
  #spread(changed: { readonly identities: boolean; readonly policies: boolean }): void {
    const { inputs, tables } = this.#options;
    const { snapshot } = inputs;
    const mark = (rows: Iterable<EndpointRow>): void => {
      for (const row of rows) this.endpointChanged(row);
    };
    for (const pod of this.#podsChanged) mark(snapshot.list(tables.endpoints, 'pod', pod));
    for (const name of this.#namespacesChanged) mark(snapshot.prefix(tables.endpoints, tableKey.pod(name, ''), 'pod'));
    if (changed.identities) mark(snapshot.all(tables.endpoints));
    const soon = keys.int(Math.floor(this.#context.now()) + 1);
    mark(Array.from(this.#infos.select(query.range(this.#infos.table, '', soon, 'closes')), ({ row }) => row));
    if (changed.policies) for (const { row, ready } of this.#infos.values()) if (!ready) this.endpointChanged(row);
    this.#podsChanged.clear();
    this.#namespacesChanged.clear();
  }
}

/** The results. An unchanged result is the same object as before, so that readers see at once that nothing has changed. */
function keeping(before: EndpointIdentity | undefined, info: EndpointIdentity): EndpointIdentity {
  if (before === undefined) return info;
  if (isDeepStrictEqual(before, info)) return before;
  return isDeepStrictEqual(before.labels, info.labels) ? { ...info, labels: before.labels } : info;
}
