import type { StateDB, Table } from '@weir/statedb';
import type { InputSource, PolicyObjectKind } from './types.ts';

const KINDS: readonly PolicyObjectKind[] = ['CiliumNetworkPolicy', 'CiliumClusterwideNetworkPolicy', 'NetworkPolicy'];

/** Kinds of policies that cannot be read now. */
export function missingKinds(db: StateDB, sources: Table<InputSource>): ReadonlySet<PolicyObjectKind> {
  using snapshot = db.read();
  const missing = new Set(Array.from(snapshot.all(sources), (source) => source.missing));
  return new Set(KINDS.filter((kind) => missing.has(kind)));
}
