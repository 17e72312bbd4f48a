/** By what an identity finds the selectors that may match it: its namespace, and a label where they ask for one. */
import { isDistinctive, type LabelMap, type LabelSelector, matches, namespaceOf, selectorScope } from '@weir/labels';
import { afterPrefix, type IndexSpec, type Key, keys, type Reader, type Table } from '@weir/statedb';
import { labelKey } from './known-identities.ts';

export interface SelectorRow {
  readonly hash: string;
  readonly selector: LabelSelector;
}

/** No namespace has this name. */
const ANYWHERE = '*';
/** Of a table of selectors; for `matching` and `wanting`. */
export const WANTS: IndexSpec<SelectorRow> = {
  name: 'wants',
  keys: ({ hash, selector }) => wantsOf(selector).map((want) => `${want}${hash}`),
};

/** What labels want: each selector that may match them wants one of that. First what only selectors of their own namespace want. */
export function wantsOfLabels(labels: LabelMap): readonly Key[] {
  const wants = [namespaceOf(labels), ANYWHERE].flatMap((namespace) => [
    wantKey(namespace),
    ...Object.entries(labels).flatMap(([key, value]) =>
      isDistinctive(key) ? [wantKey(namespace, labelKey(key, value))] : [],
    ),
  ]);
  // A label of one key and value may come from two sources.
  return [...new Set(wants)];
}

/** Every row whose selector matches the labels, once. */
export function matching<T extends SelectorRow>(reader: Reader, table: Table<T>, labels: LabelMap): ReadonlySet<T> {
  const found = new Set<T>();
  if (reader.count(table) === 0) return found;
  for (const want of wantsOfLabels(labels))
    for (const row of wanting(reader, table, want)) if (matches(row.selector, labels)) found.add(row);
  return found;
}

/** Rows whose selectors want that, in the order of hashes; `after`: those behind that one. */
export function wanting<T extends SelectorRow>(reader: Reader, table: Table<T>, want: Key, after = ''): Iterable<T> {
  return reader.range(table, after === '' ? want : `${want}${after}\0`, afterPrefix(want), WANTS.name);
}

function wantsOf(selector: LabelSelector): Key[] {
  const { namespaces = [ANYWHERE], asked } = selectorScope(selector);
  return namespaces.flatMap((namespace) =>
    asked === undefined
      ? [wantKey(namespace)]
      : asked.values.map((value) => wantKey(namespace, labelKey(asked.key, value))),
  );
}

function wantKey(namespace: string, label: Key = ''): Key {
  return keys.join(namespace, label);
}
