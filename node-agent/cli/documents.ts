import { depthIn, withoutDepths } from '@weir/process/depth';
import { messageOf } from '@weir/process/errors';
import { loadAll } from 'js-yaml';
import { CliError } from './errors.ts';

/** Values of one file: more than an object of Kubernetes can have. */
const MOST_VALUES = 1_000_000;
/** Levels of YAML: to read twice as many may take more than the stack. */
const DEEPEST_YAML = 1_000;

/** One document of a file; the items of a Kubernetes List count as documents of their own. */
export interface PolicyDocument {
  /** Where it is: `policies.yaml[1]`. */
  readonly name: string;
  readonly value: unknown;
}

/**
 * Reads YAML (of which JSON is a part); empty documents are left out. Of what is nested deeper than DEEPEST levels nothing is looked at, as in
 * the cluster: `withoutDepths`. Throws `CliError` with line and column.
 */
export function parseDocuments(text: string, file: string): readonly PolicyDocument[] {
  const present = valuesOf(text, file)
    .filter((value) => value !== null && value !== undefined)
    .flatMap(items)
    .map(withoutDepths);
  return present.map((value, at) => ({ name: present.length === 1 ? file : `${file}[${at}]`, value }));
}

function valuesOf(text: string, file: string): readonly unknown[] {
  const deep = deepJson(text);
  if (deep !== undefined) return [deep];
  let values: readonly unknown[];
  try {
    values = loadAll(text, { maxDepth: DEEPEST_YAML });
  } catch (error) {
    const reason = messageOf(error).split('\n', 1)[0] ?? '';
    throw new CliError(`${file} cannot be read as YAML or JSON: ${reason}`, 1, { cause: error });
  }
  let left = MOST_VALUES;
  for (const value of values) left = walk(value, left, file, new Set());
  return values;
}

/** The value of JSON that is nested deeper than DEEPEST levels, of which `loadAll` reads too few: the API server takes 10,000. Else undefined. */
function deepJson(text: string): unknown {
  try {
    const value: unknown = JSON.parse(text);
    return depthIn(value) === undefined ? undefined : value;
  } catch {
    return undefined;
  }
}

/** Looks at every value, with an alias at all that it stands for; returns how many more may come. Throws `CliError`. */
function walk(value: unknown, most: number, file: string, above: Set<object>): number {
  if (typeof value !== 'object' || value === null) return most - 1;
  if (above.has(value)) throw new CliError(`${file} has an alias that leads back to itself`);
  above.add(value);
  let left = most - 1;
  for (const child of Object.values(value)) {
    if (left <= 0) throw new CliError(`${file} has aliases that stand for more than ${MOST_VALUES} values`);
    left = walk(child, left, file, above);
  }
  above.delete(value);
  return left;
}

function items(value: unknown): readonly unknown[] {
  if (typeof value !== 'object' || value === null || !('items' in value) || !Array.isArray(value.items)) return [value];
  const kind = 'kind' in value ? value.kind : undefined;
  return typeof kind === 'string' && kind.endsWith('List') ? value.items : [value];
}
