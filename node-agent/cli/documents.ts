import { depthIn, withoutDepths } from '@weir/process/depth';
import { messageOf } from '@weir/process/errors';
import { EVENT_ID, YAMLException } from 'js-yaml';
import { DocumentError } from './errors.ts';
import { readYaml } from './kubernetes-yaml.ts';
import { type Place, Places, START } from './places.ts';

/** Values of one file: more than an object of Kubernetes can have. */
const MOST_VALUES = 1_000_000;

/** One document of a file; the items of a Kubernetes List count as documents of their own. */
export interface PolicyDocument {
  /** Where it is: `policies.yaml[1]`. */
  readonly name: string;
  readonly value: unknown;
  /** Where in the file a path of the value is written. */
  place(path: string): Place;
}

interface Read {
  readonly values: readonly unknown[];
  readonly places: Places | undefined;
}

/**
 * Reads YAML (of which JSON is a part); empty documents are left out. Of what is nested deeper than DEEPEST levels nothing is looked at, as in
 * the cluster: `withoutDepths`. Throws `DocumentError` with line and column.
 */
export function parseDocuments(text: string, file: string): readonly PolicyDocument[] {
  const { values, places } = read(text, file);
  const found = values.flatMap((value, document) =>
    items(value).map(([item, within]) => ({
      value: item,
      place: (path: string) => places?.of(document, within, path) ?? START,
    })),
  );
  const present = found.filter(({ value }) => value !== null && value !== undefined);
  return present.map(({ value, place }, at) => ({
    name: present.length === 1 ? file : `${file}[${at}]`,
    value: withoutDepths(value),
    place,
  }));
}

function read(text: string, file: string): Read {
  const deep = deepJson(text);
  if (deep !== undefined) return { values: [deep], places: undefined };
  try {
    const { events, values } = readYaml(text);
    if (events.some(({ type }) => type === EVENT_ID.ALIAS)) {
      let left = MOST_VALUES;
      for (const value of values) left = walk(value, left, file, new Set());
    }
    return { values, places: new Places(text, events) };
  } catch (error) {
    if (error instanceof DocumentError) throw error;
    const mark = error instanceof YAMLException ? error.mark : undefined;
    const place = mark === undefined ? START : { line: mark.line + 1, column: mark.column + 1 };
    const reason = messageOf(error).split('\n', 1)[0] ?? '';
    throw new DocumentError(file, `cannot be read as YAML or JSON: ${reason}`, place, { cause: error });
  }
}

/** The value of JSON that is nested deeper than DEEPEST levels, of which `readYaml` reads too few: the API server takes 10,000. Else undefined. */
function deepJson(text: string): unknown {
  if (!/^\s*[[{]/.test(text)) return undefined;
  try {
    const value: unknown = JSON.parse(text);
    return depthIn(value) === undefined ? undefined : value;
  } catch {
    return undefined;
  }
}

/** Looks at every value, with an alias at all that it stands for; returns how many more may come. Throws `DocumentError`. */
function walk(value: unknown, most: number, file: string, above: Set<object>): number {
  if (typeof value !== 'object' || value === null) return most - 1;
  if (above.has(value)) throw new DocumentError(file, 'has an alias that leads back to itself');
  above.add(value);
  let left = most - 1;
  for (const child of Object.values(value)) {
    if (left <= 0) throw new DocumentError(file, `has aliases that stand for more than ${MOST_VALUES} values`);
    left = walk(child, left, file, above);
  }
  above.delete(value);
  return left;
}

/** Each with its path in the document. */
function items(value: unknown): readonly (readonly [unknown, string])[] {
  const whole = [[value, '']] as const;
  if (typeof value !== 'object' || value === null || !('items' in value) || !Array.isArray(value.items)) return whole;
  const kind = 'kind' in value ? value.kind : undefined;
  if (typeof kind !== 'string' || !kind.endsWith('List')) return whole;
  const version = 'apiVersion' in value ? value.apiVersion : undefined;
  return value.items.map((item: unknown, at) => [typed(item, kind.slice(0, -4), version), `items[${at}]`] as const);
}

/** The API server leaves kind and version out of items where the list says them: a CiliumNetworkPolicyList has nothing else. */
function typed(item: unknown, kind: string, apiVersion: unknown): unknown {
  if (kind === '' || typeof item !== 'object' || item === null || Array.isArray(item) || 'kind' in item) return item;
  return { apiVersion, kind, ...item };
}
