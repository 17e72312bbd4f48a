/** A table as aligned text, for people. */
import type { Columns, Reader, Table } from '../types.ts';

/** What `printTable` shows of the rows. */
export interface PrintOptions<T> {
  /** Default: the table's own, else the top-level properties of the rows printed, in the order they are met. */
  readonly columns?: Columns<T>;
  /** Prints at most so many rows, and says how many there are more. Default: all. */
  readonly limit?: number;
  /** Cuts longer cells to so many characters, the last a `…`. At least 1. Default: none is cut. */
  readonly width?: number;
}

const GAP = '  ';
/** What must not reach a terminal; keys are full of it. */
const CONTROL = /\p{Cc}/gu;

/** One line of headings, then one line a row in the order of primary keys; every cell is on one line. */
export function printTable<T>(reader: Reader, table: Table<T>, options: PrintOptions<T> = {}): string {
  const { limit = Number.POSITIVE_INFINITY, width = Number.POSITIVE_INFINITY } = options;
  const rows: T[] = [];
  for (const row of reader.all(table)) {
    if (rows.length >= limit) break;
    rows.push(row);
  }
  const columns = Object.entries(options.columns ?? table.spec.columns ?? propertiesOf(rows));
  const lines = [
    columns.map(([heading]) => heading),
    ...rows.map((row) => columns.map(([, cell]) => cut(show(cell(row)), width))),
  ];
  const widths = columns.map((_, i) => Math.max(...lines.map((cells) => cells[i]?.length ?? 0)));
  const text = lines.map((cells) =>
    cells
      .map((cell, i) => cell.padEnd(widths[i] ?? 0))
      .join(GAP)
      .trimEnd(),
  );
  const more = reader.count(table) - rows.length;
  if (more > 0) text.push(`... and ${more} more`);
  return text.join('\n');
}

function cut(text: string, width: number): string {
  return text.length > width ? `${text.slice(0, width - 1)}…` : text;
}

function propertiesOf<T>(rows: readonly T[]): Columns<T> {
  const names = new Set(rows.flatMap((row) => (typeof row === 'object' && row !== null ? Object.keys(row) : [])));
  return Object.fromEntries(
    [...names].map((name) => [name, (row: T) => (row as Readonly<Record<string, unknown>>)[name]]),
  );
}

const hex = (byte: number): string => byte.toString(16).padStart(2, '0');

/** A cell: short rather than exact; for exact values there is `dump`. */
function show(value: unknown): string {
  if (typeof value === 'string') return value.replace(CONTROL, (unit) => `\\x${hex(unit.charCodeAt(0))}`);
  if (value === undefined) return '';
  if (value === null) return 'null';
  if (typeof value !== 'object') return plain(value);
  if (value instanceof Error) return show(value.message);
  if (value instanceof Date) return Number.isNaN(value.getTime()) ? 'invalid date' : value.toISOString();
  if (value instanceof Uint8Array) return `0x${Array.from(value, hex).join('')}`;
  if (Array.isArray(value) || value instanceof Set) return Array.from(value, show).join(',');
  const entries = value instanceof Map ? [...value] : Object.entries(value);
  return entries.map(([key, inner]) => `${show(key)}=${show(inner)}`).join(',');
}

/** A value that is no object: of functions and symbols there is nothing to show but what they are. */
function plain(value: unknown): string {
  return typeof value === 'number' || typeof value === 'bigint' || typeof value === 'boolean'
    ? `${value}`
    : `[${typeof value}]`;
}
