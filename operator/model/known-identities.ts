import { type LabelMap, labelsKey, NAMESPACE_LABEL } from '@weir/labels';
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
    name: 'known-identities',
    key: ({ row }) => identityKey(row.id),
    indexes: [
      { name: 'labels', keys: ({ row }) => [labelsKey(row.labels)] },
      { name: 'namespace', keys: ({ row }) => [namespaceOf(row.labels)] },
      // Both: longest unused first.
      { name: 'unused', keys: ({ unusedSince }) => timeKeys(unusedSince) },
      {
        name: 'unused-in',
        keys: ({ row, unusedSince }) => timeKeys(unusedSince).map((time) => keys.join(namespaceOf(row.labels), time)),
      },
    ],
  });
}

export function namespaceOf(labels: LabelMap): string {
  return labels[NAMESPACE_LABEL] ?? '';
}

/** In keys: of one width, so that numbers are in order. */
export function identityKey(id: number): Key {
  return keys.uint(id, 32);
}

function timeKeys(ms: number | undefined): Key[] {
  return ms === undefined ? [] : [keys.int(Math.floor(ms))];
}
