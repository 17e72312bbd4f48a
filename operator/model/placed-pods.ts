import { type Key, keys, type StateDB, type Table } from '@weir/statedb';
import type { NoIdentityError } from '../errors.ts';
import type { PodRow } from '../types.ts';
import { identityKey } from './known-identities.ts';
import { addressKey } from './pod-networks.ts';

/** A pod as it was placed last, and the identity that it has since. */
export interface PlacedPod {
  readonly row: PodRow;
  readonly identity: number | undefined;
  /** Why it has found no number; undefined: it does not wait for one. */
  readonly waiting: NoIdentityError | undefined;
}

export function createPlacedPods(db: StateDB): Table<PlacedPod> {
  return db.table<PlacedPod>({
    name: 'placedPods',
    key: ({ row }) => row.key,
    indexes: [
      { name: 'identity', keys: ({ identity }) => (identity === undefined ? [] : [identityKey(identity)]) },
      { name: 'address', kind: 'lpm', keys: (pod) => claimsOf(pod).map(addressKey) },
      { name: 'node', keys: ({ row }) => (row.node === undefined ? [] : [row.node]) },
      { name: 'waiting', keys: (pod) => (pod.waiting === undefined ? [] : [waitingKey(pod.waiting.account, pod)]) },
    ],
  });
}

/** Addresses that the pod claims: none without an identity. */
export function claimsOf(pod: PlacedPod | undefined): readonly string[] {
  return pod?.identity === undefined ? [] : pod.row.addresses;
}

/** Of index `waiting`: of a pod that waits for this account. */
export function waitingKey(account: string, { row }: PlacedPod): Key {
  return keys.join(account, row.key);
}
