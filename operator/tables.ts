/** The operator's tables. A write that changes nothing is not a change. */
import { isDeepStrictEqual } from 'node:util';
import { reachesVersion } from '@weir/kube';
import type { CidrGroup, ServicePeers } from '@weir/policy';
import { type IndexSpec, keys, type StateDB, type Table, type WriteTxn } from '@weir/statedb';
import { hashesOf } from './names.ts';
import type {
  EventRow,
  IdentityRow,
  InputSource,
  NamespaceRow,
  NodeReportRow,
  NodeRow,
  PeerSetRow,
  PodRow,
  PolicyRow,
  ResolvedRow,
  ResolvedVersionRow,
  ServiceRow,
  ServiceSliceRow,
  SliceRow,
  StatusRow,
} from './types.ts';

/** A desired row; `touch` grows when the object must be looked at again although the row stays. */
export interface Desired<T> {
  readonly row: T;
  readonly touch: number;
}

/** Each with the names of its indexes. */
export interface Tables {
  readonly inputSources: Table<InputSource, 'place'>;
  readonly policies: Table<PolicyRow, never>;
  readonly namespaces: Table<NamespaceRow, never>;
  readonly pods: Table<PodRow, never>;
  readonly nodes: Table<NodeRow, never>;
  readonly services: Table<ServiceRow, never>;
  readonly serviceSlices: Table<ServiceSliceRow, 'service'>;
  /** Derived from these two (kubernetes/service-peers.ts): what `toServices` may mean. Key: `namespace/name`. */
  readonly servicePeers: Table<ServicePeers, 'name'>;
  readonly cidrGroups: Table<CidrGroup, never>;
  readonly reports: Table<NodeReportRow, never>;
  readonly resolvedVersions: Table<ResolvedVersionRow, never>;
  readonly identities: Table<Desired<IdentityRow>, never>;
  readonly peerSets: Table<Desired<PeerSetRow>, 'hash'>;
  readonly resolved: Table<Desired<ResolvedRow>, 'peer-set'>;
  readonly slices: Table<Desired<SliceRow>, never>;
  readonly statuses: Table<Desired<StatusRow>, never>;
  readonly events: Table<Desired<EventRow>, 'about'>;
}

export function createTables(db: StateDB): Tables {
  const input = <T>(name: string, key: (row: T) => string): Table<T, never> =>
    db.table({ name, key, equals: isDeepStrictEqual });
  const desired = <T, I extends string = never>(
    name: string,
    key: (row: T) => string,
    indexes: readonly IndexSpec<Desired<T>, I>[] = [],
  ): Table<Desired<T>, I> => db.table({ name, key: (desired) => key(desired.row), indexes, equals: isDeepStrictEqual });
  return {
    inputSources: db.table<InputSource, 'place'>({
      name: 'inputSources',
      key: ({ name }) => name,
      indexes: [{ name: 'place', keys: ({ place }) => [keys.uint(place, 8)] }],
    }),
    // Of one generation the API server holds one specification: to compare what may be a megabyte would take a tenth of a second.
    policies: db.table<PolicyRow, never>({
      name: 'policies',
      key: (row) => row.key,
      equals: (a, b) =>
        a.uid === b.uid && a.generation === b.generation && (a.generation > 0 || isDeepStrictEqual(a, b)),
    }),
    namespaces: input<NamespaceRow>('namespaces', (row) => row.name),
    pods: input<PodRow>('pods', (row) => row.key),
    nodes: input<NodeRow>('nodes', (row) => row.name),
    services: input<ServiceRow>('services', (row) => row.key),
    serviceSlices: db.table<ServiceSliceRow, 'service'>({
      name: 'serviceSlices',
      key: (row) => row.key,
      indexes: [{ name: 'service', keys: ({ service }) => [service] }],
      equals: isDeepStrictEqual,
    }),
    servicePeers: db.table<ServicePeers, 'name'>({
      name: 'servicePeers',
      key: ({ namespace, name }) => `${namespace}/${name}`,
      indexes: [{ name: 'name', keys: ({ name }) => [name] }],
      equals: isDeepStrictEqual,
    }),
    cidrGroups: input<CidrGroup>('cidrGroups', ({ name }) => name),
    reports: input<NodeReportRow>('nodeReports', (row) => row.node),
    // A later version of the same generation differs in what nobody waits for: the first one stays, unless the API server's storage was put back.
    resolvedVersions: db.table({
      name: 'resolvedVersions',
      key: (row) => row.name,
      equals: (was, is) =>
        was.uid === is.uid && was.generation === is.generation && reachesVersion(is.version, was.version),
    }),
    identities: desired('desiredIdentities', (row) => String(row.id)),
    peerSets: desired('desiredPeerSets', (row) => row.name, [{ name: 'hash', keys: ({ row }) => [row.hash] }]),
    resolved: desired('desiredResolvedPolicies', (row) => row.name, [
      { name: 'peer-set', keys: ({ row }) => hashesOf(row.rules) },
    ]),
    slices: desired('desiredEndpointSlices', (row) => row.name),
    statuses: desired('desiredPolicyStatuses', (row) => row.key),
    events: desired('desiredEvents', (row) => row.key, [{ name: 'about', keys: ({ row }) => [row.about.key] }]),
  };
}

/** Puts a row into its desired table. `again`: what the API holds must be looked at, changed or not. */
export function show<T>(txn: WriteTxn, table: Table<Desired<T>>, row: T, again = false): void {
  const touch = txn.get(table, table.spec.key({ row, touch: 0 }))?.touch ?? 0;
  txn.upsert(table, { row, touch: again ? touch + 1 : touch });
}

/** What the API holds of this row must be looked at again. */
export function touch<T>(db: StateDB, table: Table<Desired<T>>, key: string): void {
  db.write([table], (txn) => {
    const desired = txn.get(table, key);
    if (desired !== undefined) txn.upsert(table, { row: desired.row, touch: desired.touch + 1 });
  });
}
