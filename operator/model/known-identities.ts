import { isDistinctive, type LabelMap, labelsKey, namespaceOf } from '@weir/labels';
import { type Key, keys, type StateDB, type Table } from '@weir/statedb';
import type { IdentityRow } from '../types.ts';
import { accountNames, type Payer } from './identity-accounts.ts';

/** A number that stands for a label set. */
export interface KnownIdentity {
  readonly row: IdentityRow;
  /** Milliseconds; undefined: a pod has it. */
  readonly unusedSince: number | undefined;
  /** Who pays for it (identity-accounts.ts). */
  readonly payer: Payer;
  /** A node pays though an ordinary pod has it, because its namespace has no room. */
  readonly owed: boolean;
}

export function createKnownIdentities(db: StateDB): Table<KnownIdentity> {
  return db.table<KnownIdentity>({
    name: 'known-identities',
    key: ({ row }) => identityKey(row.id),
    indexes: [
      { name: 'labels', keys: ({ row }) => [labelsKey(row.labels)] },
      { name: 'namespace', keys: ({ row }) => [namespaceOf(row.labels)] },
      { name: 'label', keys: ({ row }) => labelKeys(row.labels) },
      // Both: longest unused first.
      { name: 'unused', keys: ({ unusedSince }) => timeKeys(unusedSince) },
      {
        name: 'unused-in',
        keys: ({ row, unusedSince, payer }) =>
          timeKeys(unusedSince).flatMap((time) =>
            accountNames(namespaceOf(row.labels), payer).map((account) => keys.join(account, time)),
          ),
      },
      { name: 'owed', keys: ({ row, owed }) => (owed ? [namespaceOf(row.labels)] : []) },
    ],
  });
}

/** In keys: of one width, so that numbers are in order. */
export function identityKey(id: number): Key {
  return keys.uint(id, 32);
}

/** Of index `label`: of identities that have the value under the key, whatever its source; of one namespace, or of all. */
export function labelKey(key: string, value: string, namespace?: string): Key {
  const bare = key.slice(key.indexOf(':') + 1);
  return namespace === undefined ? keys.join(bare, value) : keys.join(bare, value, namespace);
}

function labelKeys(labels: LabelMap): Key[] {
  const namespace = namespaceOf(labels);
  return Object.entries(labels).flatMap(([key, value]) =>
    isDistinctive(key) ? [labelKey(key, value, namespace)] : [],
  );
}

function timeKeys(ms: number | undefined): Key[] {
  return ms === undefined ? [] : [keys.int(Math.floor(ms))];
}
