import { namespaceOf } from '@weir/labels';
import type { SelectorHash } from '@weir/policy';
import { reportTables } from '@weir/reconciler';
import type { AnyTable, StateDB } from '@weir/statedb';
import { keys } from '@weir/statedb';
import type { Tables } from './core.ts';
import type { EndpointRow, EnforcementFault, PolicyRow } from './tables.ts';

/** Primary keys of the agent's tables, for `get` and `delete`. */
export const tableKey = {
  endpoint: (id: number): string => keys.uint(id),
  identity: (id: number): string => keys.uint(id),
  slot: (slot: number): string => keys.uint(slot),
  pod: (namespace: string, name: string): string => `${namespace}/${name}`,
  fault: ({ part, of }: Pick<EnforcementFault, 'part' | 'of'>): string => keys.join(part, of),
} as const;

/** Names what table `policies` waits for while nobody knows which rules were imported. */
export const IMPORTED = 'imported-rules';

/** The one key of indexes that hold some of the rows. */
export const YES = keys.join('yes');

/** The PeerSets that a policy names, as subjects and as peers. */
export function peerSetsOf({ rules }: PolicyRow): Set<SelectorHash> {
  const out = new Set<SelectorHash>();
  for (const { subject, peers } of rules) {
    out.add(subject);
    for (const peer of peers ?? []) if ('peerSet' in peer) out.add(peer.peerSet);
  }
  return out;
}

/** Registers the agent's tables (contract: tables.ts). */
export function createTables(db: StateDB): Tables {
  return {
    policies: db.table({
      name: 'policies',
      key: (row) => row.uid,
      indexes: [{ name: 'peerSet', keys: peerSetsOf }],
    }),
    policyStatuses: db.table({ name: 'policyStatuses', key: (row) => row.uid }),
    unreadPolicies: db.table({ name: 'unreadPolicies', key: (row) => row.uid }),
    proxyFaults: db.table({ name: 'proxyFaults', key: (row) => row.proxy }),
    policyVersions: db.table({ name: 'policyVersions', key: (row) => keys.uint(row.revision) }),
    peerSets: db.table({ name: 'peerSets', key: (row) => row.hash }),
    identities: db.table({
      name: 'identities',
      key: (row) => tableKey.identity(row.id),
      indexes: [
        { name: 'labels', keys: (row) => [row.labelsKey] },
        { name: 'namespace', keys: ({ labels }) => [namespaceOf(labels)] },
      ],
    }),
    remoteEndpoints: db.table({
      name: 'remoteEndpoints',
      key: (row) => tableKey.pod(row.namespace, row.name),
      indexes: [
        { name: 'identity', keys: (row) => [tableKey.identity(row.identity)] },
        { name: 'address', keys: (row) => row.addresses },
      ],
    }),
    nodes: db.table({ name: 'nodes', key: (row) => row.name }),
    nameIdentities: db.table({
      name: 'nameIdentities',
      key: ({ identity }) => tableKey.identity(identity),
      indexes: [{ name: 'pattern', keys: ({ patterns }) => patterns }],
    }),
    localPods: db.table({
      name: 'localPods',
      key: (row) => tableKey.pod(row.namespace, row.name),
      indexes: [{ name: 'address', keys: (row) => row.addresses }],
    }),
    namespaces: db.table({ name: 'namespaces', key: (row) => row.name }),
    apiserverAddresses: db.table({ name: 'apiserverAddresses', key: (row) => row.address }),
    services: db.table({
      name: 'services',
      key: (row) => `${row.namespace}/${row.name}`,
      indexes: [{ name: 'address', keys: (row) => row.addresses }],
    }),
    endpoints: db.table({
      name: 'endpoints',
      key: (row) => tableKey.endpoint(row.id),
      indexes: [
        // After a reboot the index of an interface that is gone is another's.
        {
          name: 'ifindex',
          unique: true,
          keys: ({ gone, ifindex }) => (gone === undefined ? [keys.uint(ifindex)] : []),
        },
        { name: 'address', unique: true, keys: ({ addresses }) => addresses },
        { name: 'pod', keys: (row) => (row.pod ? [tableKey.pod(row.pod.namespace, row.pod.name)] : []) },
        { name: 'found', keys: ({ found }) => (found === undefined ? [] : ['']) },
        { name: 'stray', keys: strayness },
      ],
    }),
    ipcache: db.table({
      name: 'ipcache',
      key: (row) => row.prefix,
      indexes: [{ name: 'changing', keys: ({ before }) => (before === undefined ? [] : ['']) }],
    }),
    slots: db.table({ name: 'slots', key: (row) => tableKey.slot(row.slot) }),
    endpointStates: db.table({ name: 'endpointStates', key: (row) => tableKey.endpoint(row.id) }),
    podEvents: db.table({ name: 'podEvents', key: (row) => row.key }),
    delayedNodeEvents: db.table({ name: 'delayedNodeEvents', key: (row) => row.key }),
    ...kernelTables(db),
  };
}

type KernelTables =
  | 'kernelEndpoints'
  | 'kernelFailures'
  | 'kernelReconcilers'
  | 'enforcementFaults'
  | 'laggingEndpoints';

/** What the kernel acknowledged, and what not. */
function kernelTables(db: StateDB): Pick<Tables, KernelTables> {
  const { failures, health } = reportTables(db, { health: 'kernelReconcilers', failures: 'kernelFailures' });
  return {
    kernelEndpoints: db.table({
      name: 'kernelEndpoints',
      key: (row) => tableKey.endpoint(row.id),
      indexes: [
        { name: 'slot', keys: (row) => [keys.uint(row.slot)] },
        { name: 'ifindex', keys: (row) => [keys.uint(row.ifindex)] },
        { name: 'doubted', keys: (row) => (row.doubted ? [YES] : []) },
        { name: 'quarantined', keys: (row) => (row.quarantined === undefined ? [] : [YES]) },
      ],
    }),
    kernelFailures: failures,
    kernelReconcilers: health,
    enforcementFaults: db.table({ name: 'enforcementFaults', key: tableKey.fault }),
    laggingEndpoints: db.table({ name: 'laggingEndpoints', key: (row) => tableKey.endpoint(row.id) }),
  };
}

/** `gone`: its interface is. `found`: nothing but the kernel speaks for it. */
function strayness({ gone, found, pod, labels }: EndpointRow): readonly string[] {
  if (gone !== undefined) return ['gone'];
  return found !== undefined && pod === undefined && labels === undefined ? ['found'] : [];
}

/** Tables that the kernel's content is computed from: before each of them is complete, it is left as it is. */
export function inputTables(tables: Tables): readonly AnyTable[] {
  const {
    policyStatuses: _statuses,
    unreadPolicies: _unread,
    policyVersions: _versions,
    proxyFaults: _proxies,
    services: _services,
    ipcache: _ipcache,
    slots: _slots,
    endpointStates: _states,
    kernelEndpoints: _kernel,
    kernelFailures: _failures,
    kernelReconcilers: _reconcilers,
    enforcementFaults: _faults,
    laggingEndpoints: _lagging,
    podEvents: _events,
    delayedNodeEvents: _held,
    ...inputs
  } = tables;
  return Object.values(inputs);
}
