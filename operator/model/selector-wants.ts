/** By what an identity finds the selectors that may match it: its namespace, and a label where they ask for one. */
import {
  type LabelMap,
  type LabelSelector,
  matches,
  NAMESPACE_LABEL,
  namespaceOf,
  type Requirement,
} from '@weir/labels';
import { afterPrefix, type IndexSpec, type Key, keys, type Reader, type Table } from '@weir/statedb';
import { isIndexed, isNarrow, labelKey } from './known-identities.ts';

export interface SelectorRow {
  readonly hash: string;
  readonly selector: LabelSelector;
}

/** Where identities that a selector may match can be looked up. */
export interface Scope {
  /** undefined: any. */
  readonly namespaces: readonly string[] | undefined;
  /** What only identities that have a label fulfil. */
  readonly asked: Requirement | undefined;
}

/** Places that are looked up one by one: namespaces, values of a label, or pairs of them. */
const MOST_PLACES = 100;
/** No namespace has this name. */
const ANYWHERE = '*';
/** Digits by which hashes are in 256 buckets: who looks at all selectors that want the same can go on at the next bucket. */
const BUCKET_DIGITS = 2;

/** Of a table of selectors; for `matching` and `wanting`. */
export const WANTS: IndexSpec<SelectorRow> = {
  name: 'wants',
  keys: ({ hash, selector }) => wantsOf(selector).map((want) => `${want}${bucketOf(hash)}`),
};

export function scopeOf({ requirements }: LabelSelector): Scope {
  const named = requirements.find(({ key, operator }) => key === NAMESPACE_LABEL && operator === 'In')?.values;
  const namespaces = named !== undefined && named.length <= MOST_PLACES ? named : undefined;
  const most = MOST_PLACES / (namespaces?.length ?? 1);
  const askable = requirements.filter(
    ({ key, operator, values }) => operator === 'In' && values.length <= most && isIndexed(key),
  );
  return { namespaces, asked: askable.find(({ key }) => isNarrow(key)) ?? askable[0] };
}

/** Of how many namespaces all identities may have to be asked, at least 1 and at most `most`: 1 where few of them have the label that it asks for. */
export function breadthOf(selector: LabelSelector, most: number): number {
  const { namespaces, asked } = scopeOf(selector);
  return asked !== undefined && isNarrow(asked.key) ? 1 : Math.max(1, Math.min(most, namespaces?.length ?? most));
}

/** What labels want: each selector that may match them wants one of that. First what only selectors of their own namespace want. */
export function wantsOfLabels(labels: LabelMap): readonly Key[] {
  const wants = [namespaceOf(labels), ANYWHERE].flatMap((namespace) => [
    wantKey(namespace),
    ...Object.entries(labels).flatMap(([key, value]) =>
      isIndexed(key) ? [wantKey(namespace, labelKey(key, value))] : [],
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

/** Rows whose selectors want that, bucket after bucket. */
export function wanting<T extends SelectorRow>(
  reader: Reader,
  table: Table<T>,
  want: Key,
  fromBucket = '',
): Iterable<T> {
  if (fromBucket === '') return reader.prefix(table, want, WANTS.name);
  return reader.range(table, `${want}${fromBucket}`, afterPrefix(want), WANTS.name);
}

export function bucketOf(hash: string): string {
  return hash.slice(0, BUCKET_DIGITS);
}

function wantsOf(selector: LabelSelector): Key[] {
  const { namespaces = [ANYWHERE], asked } = scopeOf(selector);
  return namespaces.flatMap((namespace) =>
    asked === undefined
      ? [wantKey(namespace)]
      : asked.values.map((value) => wantKey(namespace, labelKey(asked.key, value))),
  );
}

function wantKey(namespace: string, label: Key = ''): Key {
  return keys.join(namespace, label);
}
