import { LabelError } from './errors.ts';
import type { Label, LabelMap } from './types.ts';

/** Parses `source:key=value`. Without a source it is `unspec`; without `=` the value is empty. @throws LabelError */
export function parseLabel(text: string): Label {
  const equals = text.indexOf('=');
  const name = equals < 0 ? text : text.slice(0, equals);
  const value = equals < 0 ? '' : text.slice(equals + 1);
  const colon = name.indexOf(':');
  const source = colon <= 0 ? 'unspec' : name.slice(0, colon);
  const key = name.slice(colon + 1);
  if (key === '') throw new LabelError(text, 'has no key: write source:key=value');
  if (source === 'any')
    throw new LabelError(text, 'has the source any, which is for selectors only: write k8s or another');
  return { source, key, value };
}

/** `source:key=value`. */
export function formatLabel(label: Label): string {
  return `${label.source}:${label.key}=${label.value}`;
}

/** `source:key=value` texts, sorted by code units: how identities are printed. */
export function formatLabels(labels: LabelMap): string[] {
  return Object.entries(labels)
    .map(([name, value]) => `${name}=${value}`)
    .sort(compareText);
}

/** Reads what `formatLabels` prints. The last of two labels of one name counts. @throws LabelError */
export function parseLabels(texts: Iterable<string>): LabelMap {
  const labels: Record<string, string> = {};
  for (const text of texts) {
    const { source, key, value } = parseLabel(text);
    labels[`${source}:${key}`] = value;
  }
  return sortLabels(labels);
}

/** The same labels with their names in order. */
export function sortLabels(labels: LabelMap): LabelMap {
  return Object.fromEntries(Object.entries(labels).sort(([a], [b]) => compareText(a, b)));
}

/** One text for one label set, whatever the order of the map: the key of an identity. */
export function labelsKey(labels: LabelMap): string {
  return JSON.stringify(Object.entries(labels).sort(([a], [b]) => compareText(a, b)));
}

/** Order by UTF-16 code units: the same in every locale. */
export function compareText(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}
