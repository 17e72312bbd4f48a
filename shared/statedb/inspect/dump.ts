/**
 * A table as JSON lines and back, for debugging: one line that says what it is, then one line a row.
 *
 *     {"statedb":1,"table":"pods","revision":12,"rows":2}
 *     {"revision":7,"row":{"name":"a","node":"n1"}}
 */

import { StateDBError } from '../errors.ts';
import type { Change, Reader, Revision, StateDB, Table } from '../types.ts';
import { decode, encode } from './codec.ts';

const FORMAT = 1;

/**
 * `restore` cannot take a line of the dump; nothing was changed. Where the table refuses the row, `cause` is its error.
 * @fix Correct the line whose number the message gives.
 */
export class RestoreError extends StateDBError {
  readonly code = 'ERR_STATEDB_RESTORE';
  /** Counted from 1. */
  readonly line: number;
  constructor(table: string, line: number, problem: string, options?: ErrorOptions) {
    super(`line ${line} of the dump to restore into table "${table}": ${problem}; nothing was changed`, options);
    this.line = line;
  }
}

/**
 * The table's rows in the order of primary keys, as they are when each line is taken. Map, Set, Date, Uint8Array, bigint,
 * undefined, -0, NaN and infinities survive; of an Error its name and message. Throws `UnserialisableError` for a row that holds anything else.
 */
export function* dump<T>(reader: Reader, table: Table<T>): Generator<string, undefined, undefined> {
  const { name } = table;
  yield JSON.stringify({ statedb: FORMAT, table: name, revision: reader.revision(table), rows: reader.count(table) });
  for (const row of reader.all(table)) {
    const key = table.spec.key(row);
    const revision = reader.getVersioned(table, key)?.revision ?? 0;
    yield dumpChange(table, { row, revision, deleted: false });
  }
  return undefined;
}

/** A change as a line: of a row that is there, the line of `dump`; of one that is gone, with `"deleted":true`. Throws `UnserialisableError`. */
export function dumpChange<T>(table: Table<T>, { row, revision, deleted }: Change<T>): string {
  const where = `table "${table.name}", row ${JSON.stringify(table.spec.key(row))}: row`;
  return JSON.stringify({ revision, ...(deleted ? { deleted } : {}), row: encode(row, where) });
}

/**
 * Replaces the table's rows by those of a dump, in one write transaction; empty lines are passed over. The rows get new
 * revisions. Throws `RestoreError`, and what `db.write` throws; nothing is changed then.
 */
export function restore<T>(db: StateDB, table: Table<T>, lines: Iterable<string>): void {
  db.write([table], (txn) => {
    let at = 0;
    let restored = 0;
    let expected: number | undefined;
    const fail = (problem: string, options?: ErrorOptions): RestoreError =>
      new RestoreError(table.name, Math.max(1, at), problem, options);
    const attempt = <R>(action: () => R): R => {
      try {
        return action();
      } catch (cause) {
        throw fail(cause instanceof Error ? cause.message : String(cause), { cause });
      }
    };
    txn.deleteAll(table);
    for (const line of lines) {
      at++;
      if (line.trim() === '') continue;
      const json = attempt((): unknown => JSON.parse(line));
      if (expected === undefined) {
        expected = attempt(() => readHeader(json, table.name).rows);
        continue;
      }
      attempt(() => {
        if (!isRecord(json) || !Object.hasOwn(json, 'row')) throw new TypeError('is no row: it has no property "row"');
        // What the row is, the table's own key functions find out.
        txn.insert(table, decode(json.row) as T);
      });
      restored++;
    }
    if (expected === undefined) throw fail('there is no line that says what this is');
    if (restored !== expected) throw fail(`the dump is of ${expected} rows but ends after ${restored}`);
  });
}

interface Header {
  readonly revision: Revision;
  readonly rows: number;
}

function isRecord(json: unknown): json is Readonly<Record<string, unknown>> {
  return typeof json === 'object' && json !== null && !Array.isArray(json);
}

function readHeader(json: unknown, table: string): Header {
  if (!isRecord(json) || !('statedb' in json))
    throw new TypeError('is no head of a dump: it has no property "statedb"');
  const { statedb, table: name, revision, rows } = json;
  if (statedb !== FORMAT) throw new TypeError(`format ${JSON.stringify(statedb)} is not known; this reads ${FORMAT}`);
  if (name !== table) throw new TypeError(`is the dump of table ${JSON.stringify(name)}`);
  if (typeof revision !== 'number' || typeof rows !== 'number')
    throw new TypeError('the head has no revision or no rows');
  return { revision, rows };
}
