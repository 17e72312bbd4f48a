/** Which CiliumCIDRGroups a policy names, so that a change of one finds the policies to read again. */
import type { LabelSelector } from '@weir/labels';
import { type CidrGroup, type CidrGroupRef, type CidrGroupView, selectsCidrGroup } from '@weir/policy';
import { type IndexSpec, keys, type Reader, type Table } from '@weir/statedb';
import type { Tables } from '../tables.ts';

/** What is known of a policy that has been read. */
export interface NamesCidrGroups {
  readonly cidrGroups: readonly CidrGroupRef[];
}

const byName = (name: string): string => keys.join('name', name);
const BY_SELECTOR = keys.join('selector');

/** Index of tables whose rows name groups. */
export const CIDR_GROUP_INDEX: IndexSpec<NamesCidrGroups, 'cidr-group'> = {
  name: 'cidr-group',
  // What left a selector's groups is found by what it was.
  keys: ({ cidrGroups }) => {
    const names = new Set(cidrGroups.flatMap(({ name }) => name ?? []));
    // References that repeat others share what they found.
    for (const found of new Set(cidrGroups.map((each) => each.found))) for (const name of found) names.add(name);
    const bySelector = cidrGroups.some(({ name }) => name === undefined);
    return [...(bySelector ? [BY_SELECTOR] : []), ...Array.from(names, byName)];
  },
};

/** Rows that another state of this group may change: those that mean it, and those that would now. */
export function* namesCidrGroup<Row extends NamesCidrGroups>(
  reader: Reader,
  table: Table<Row>,
  group: Pick<CidrGroup, 'name' | 'labels'>,
): Generator<Row> {
  yield* reader.list(table, CIDR_GROUP_INDEX.name, byName(group.name));
  for (const row of reader.list(table, CIDR_GROUP_INDEX.name, BY_SELECTOR)) {
    const selectors = new Set(row.cidrGroups.map(({ selector }) => selector));
    const isMeant = (selector?: LabelSelector) => selector !== undefined && selectsCidrGroup(selector, group);
    if (selectors.values().some(isMeant)) yield row;
  }
}

/** Groups as the table has them. */
export function cidrGroupsIn(reader: Reader, { cidrGroups }: Pick<Tables, 'cidrGroups'>): CidrGroupView {
  return { get: (name) => reader.get(cidrGroups, name), all: () => reader.all(cidrGroups) };
}
