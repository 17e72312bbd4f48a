import { isDistinctive, labelsKey, namespaceOf } from '@weir/labels';
import { type Key, keys, type StateDB, type Table } from '@weir/statedb';
import type { IdentityRow } from '../types.ts';

/** A number that stands for a label set. */
export interface KnownIdentity {
  readonly row: IdentityRow;
  /** Milliseconds; undefined: a pod has it. */
  readonly unusedSince: number | undefined;
}

export function createKnownIdentities(db: StateDB): Table<KnownIdentity> {
  return db.table<KnownIdentity>({
    name: 'knownIdentities',
    key: ({ row }) => identityKey(row.id),
    indexes: [
      { name: 'labels', keys: ({ row }) => [labelsKey(row.labels)] },
      { name: 'namespace', keys: ({ row }) => [namespaceKey(namespaceOf(row.labels), row.id)] },
      { name: 'label', keys: ({ row }) => labelKeys(row) },
      // Both: longest unused first.
      { name: 'unused', keys: ({ unusedSince }) => timeKeys(unusedSince) },
      {
        name: 'unused-in',
        keys: ({ row, unusedSince }) => timeKeys(unusedSince).map((time) => keys.join(namespaceOf(row.labels), time)),
      },
    ],
  });
}

/** In keys: of one width, so that numbers are in order. */
export function identityKey(id: number): Key {
  return keys.uint(id, 32);
}

/** Of index `namespace`, of an identity or of all: so that who looks at many can go on after one. */
export function namespaceKey(namespace: string, id?: number): Key {
  return id === undefined ? keys.join(namespace) : keys.join(namespace, identityKey(id));
}

/** Of index `label`: of identities that have the value under the key, whatever its source; of one namespace, or of all. */
export function labelKey(key: string, value: string, namespace?: string, id?: number): Key {
  const bare = key.slice(key.indexOf(':') + 1);
  if (namespace === undefined) return keys.join(bare, value);
  return id === undefined ? keys.join(bare, value, namespace) : keys.join(bare, value, namespace, identityKey(id));
}

function labelKeys({ id, labels }: IdentityRow): Key[] {
  const namespace = namespaceOf(labels);
  return Object.entries(labels).flatMap(([key, value]) =>
    isDistinctive(key) ? [labelKey(key, value, namespace, id)] : [],
  );
}

function timeKeys(ms: number | undefined): Key[] {
  return ms === undefined ? [] : [keys.int(Math.floor(ms))];
}
