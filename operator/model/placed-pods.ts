import type { StateDB, Table } from '@weir/statedb';
import type { PodRow } from '../types.ts';
import { identityKey } from './known-identities.ts';
import { addressKey } from './pod-networks.ts';

/** A pod as it was placed last, and the identity that it has since. */
export interface PlacedPod {
  readonly row: PodRow;
  readonly identity: number | undefined;
  /** It found no free number. */
  readonly waiting: boolean;
}

export function createPlacedPods(db: StateDB): Table<PlacedPod> {
  return db.table<PlacedPod>({
    name: 'placed-pods',
    key: ({ row }) => row.key,
    indexes: [
      { name: 'identity', keys: ({ identity }) => (identity === undefined ? [] : [identityKey(identity)]) },
      { name: 'address', kind: 'lpm', keys: (pod) => claimsOf(pod).map(addressKey) },
      { name: 'node', keys: ({ row }) => (row.node === undefined ? [] : [row.node]) },
      { name: 'waiting', keys: ({ waiting }) => (waiting ? [''] : []) },
    ],
  });
}

/** Addresses that the pod claims: none without an identity. */
export function claimsOf(pod: PlacedPod | undefined): readonly string[] {
  return pod?.identity === undefined ? [] : pod.row.addresses;
}
