import { DEEPEST } from '@weir/process/depth';
import { messageOf } from '@weir/process/errors';
import { loadAll } from 'js-yaml';
import { CliError } from './errors.ts';

/** Values of one file: more than an object of Kubernetes can have. */
const MOST_VALUES = 1_000_000;

/** One document of a file; the items of a Kubernetes List count as documents of their own. */
export interface PolicyDocument {
  /** Where it is: `policies.yaml[1]`. */
  readonly name: string;
  readonly value: unknown;
}

/** Reads YAML (of which JSON is a part); empty documents are left out. Throws `CliError` with line and column. */
export function parseDocuments(text: string, file: string): readonly PolicyDocument[] {
  let values: readonly unknown[];
  try {
    values = loadAll(text);
  } catch (error) {
    throw new CliError(`${file} is neither YAML nor JSON: ${firstLine(messageOf(error))}`, 1, { cause: error });
  }
  let left = MOST_VALUES;
  for (const value of values) left = walk(value, left, file);
  const present = values.filter((value) => value !== null && value !== undefined).flatMap(items);
  return present.map((value, at) => ({ name: present.length === 1 ? file : `${file}[${at}]`, value }));
}

/** Looks at every value, with an alias at all that it stands for; returns how many more may come. Throws `CliError`. */
function walk(value: unknown, most: number, file: string, levels = DEEPEST): number {
  if (typeof value !== 'object' || value === null) return most - 1;
  if (levels === 0)
    throw new CliError(
      `${file} has an alias that leads back to itself, or values nested deeper than ${DEEPEST} levels`,
    );
  let left = most - 1;
  for (const child of Object.values(value)) {
    if (left <= 0) throw new CliError(`${file} has aliases that stand for more than ${MOST_VALUES} values`);
    left = walk(child, left, file, levels - 1);
  }
  return left;
}

/** Without the lines of the file that the parser shows with it. */
function firstLine(text: string): string {
  return text.split('\n', 1)[0] ?? '';
}

function items(value: unknown): readonly unknown[] {
  if (typeof value !== 'object' || value === null || !('items' in value) || !Array.isArray(value.items)) return [value];
  const kind = 'kind' in value ? value.kind : undefined;
  return typeof kind === 'string' && kind.endsWith('List') ? value.items : [value];
}
