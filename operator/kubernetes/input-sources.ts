import type { StateDB, Table } from '@weir/statedb';
import type { InputSource, PolicyObjectKind } from '../types.ts';

/** Kinds of policies that cannot be read now. */
export function missingKinds(db: StateDB, sources: Table<InputSource>): ReadonlySet<PolicyObjectKind> {
  using snapshot = db.read();
  return new Set([...snapshot.all(sources)].flatMap(({ missing }) => missing ?? []));
}
