/** Policies and pods as failures of policies name them. */
import type { ResolvedRule } from '@weir/policy';
import type { InUse } from '../derive/index.ts';
import type { PolicyRow } from '../tables.ts';

/** Pods, or policies, that a failure names. */
const MOST_NAMES = 3;

const KINDS: Readonly<Record<PolicyRow['kind'], string | undefined>> = {
  CiliumNetworkPolicy: 'cnp',
  CiliumClusterwideNetworkPolicy: 'ccnp',
  NetworkPolicy: 'knp',
  BareRules: undefined,
};

/** `cnp/namespace/name`; undefined for rules that were imported. */
export function keyOf({ kind, namespace, name }: PolicyRow): string | undefined {
  const prefix = KINDS[kind];
  return prefix === undefined ? undefined : [prefix, ...(namespace === undefined ? [] : [namespace]), name].join('/');
}

export function namesOf(names: readonly string[]): string {
  const more = names.length > MOST_NAMES ? ` and ${names.length - MOST_NAMES} more` : '';
  return `${names.slice(0, MOST_NAMES).join(', ')}${more}`;
}

/** The policies that the rules are of, those with the most first. */
export function mostRules(selecting: Iterable<readonly [InUse, ResolvedRule]>): string {
  const counts = new Map<PolicyRow, number>();
  for (const [{ row }] of selecting) counts.set(row, (counts.get(row) ?? 0) + 1);
  const largest = [...counts].sort(([, a], [, b]) => b - a);
  return namesOf(
    largest.map(([row, count]) => `${keyOf(row) ?? row.name} (${count} ${count === 1 ? 'rule' : 'rules'})`),
  );
}
