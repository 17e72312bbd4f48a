import { messageOf } from '@weir/process/errors';
import { loadAll } from 'js-yaml';
import { CliError } from './errors.ts';

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
  const present = values.filter((value) => value !== null && value !== undefined).flatMap(items);
  return present.map((value, at) => ({ name: present.length === 1 ? file : `${file}[${at}]`, value }));
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
