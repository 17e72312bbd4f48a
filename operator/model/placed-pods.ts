import { keys, type StateDB, type Table } from '@weir/statedb';
import type { NoIdentityError } from '../errors.ts';
import type { PodRow } from '../types.ts';
import { identityKey } from './known-identities.ts';
import { addressKey } from './pod-networks.ts';

/** What a pod that has no number waits for. */
export interface WaitingPod {
  /** `labelsKey` of its identity. */
  readonly labels: string;
  readonly because: NoIdentityError;
}

/** A pod as it was placed last, and the identity that it has since. */
export interface PlacedPod {
  readonly row: PodRow;
  readonly identity: number | undefined;
  /** It found no number; undefined: it does not wait for one. */
  readonly waiting: WaitingPod | undefined;
}

export function createPlacedPods(db: StateDB): Table<PlacedPod> {
  return db.table<PlacedPod>({
    name: 'placed-pods',
    key: ({ row }) => row.key,
    indexes: [
      { name: 'identity', keys: userKeys },
      {
        name: 'mirror',
        keys: ({ row, identity }) =>
          identity === undefined || row.mirrorOf === undefined ? [] : [identityKey(identity)],
      },
      { name: 'address', kind: 'lpm', keys: (pod) => claimsOf(pod).map(addressKey) },
      { name: 'node', keys: ({ row }) => (row.node === undefined ? [] : [row.node]) },
      {
        name: 'waiting',
        keys: ({ row, waiting }) => (waiting === undefined ? [] : [keys.join(waiting.because.account, row.namespace)]),
      },
      { name: 'waiting-for', keys: ({ waiting }) => (waiting === undefined ? [] : [waiting.labels]) },
    ],
  });
}

/** Addresses that the pod claims: none without an identity. */
export function claimsOf(pod: PlacedPod | undefined): readonly string[] {
  return pod?.identity === undefined ? [] : pod.row.addresses;
}

/** Ordinary pods before mirror pods, and those by node. */
function userKeys({ row: { mirrorOf = '' }, identity }: PlacedPod): string[] {
  return identity === undefined ? [] : [keys.join(identityKey(identity), mirrorOf)];
}

/** Pods whose waiting is told together. */
export function waitingGroup({ namespace, mirrorOf }: PodRow): string {
  return keys.join(namespace, mirrorOf === undefined ? 'pods' : 'mirrors');
}
