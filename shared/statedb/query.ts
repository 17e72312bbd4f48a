/** Queries as data: for watches, `waitFor` and derivations. */
import type { Key, Query, Table } from './types.ts';

export const query = {
  all: <T>(table: Table<T>): Query<T> => ({ table, kind: 'all' }),
  get: <T>(table: Table<T>, key: Key): Query<T> => ({ table, kind: 'get', key }),
  list: <T>(table: Table<T>, index: string, key: Key): Query<T> => ({ table, kind: 'list', index, key }),
  prefix: <T>(table: Table<T>, key: Key, index?: string): Query<T> => ({ table, kind: 'prefix', key, index }),
  lowerBound: <T>(table: Table<T>, from: Key, index?: string): Query<T> => ({ table, kind: 'range', from, index }),
  range: <T>(table: Table<T>, from: Key, to: Key | undefined, index?: string): Query<T> => ({
    table,
    kind: 'range',
    from,
    to,
    index,
  }),
  lookup: <T>(table: Table<T>, index: string, key: Key): Query<T> => ({ table, kind: 'lookup', index, key }),
  covering: <T>(table: Table<T>, index: string, key: Key): Query<T> => ({ table, kind: 'covering', index, key }),
  covered: <T>(table: Table<T>, index: string, key: Key): Query<T> => ({ table, kind: 'covered', index, key }),
} as const;
