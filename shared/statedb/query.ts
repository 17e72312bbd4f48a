/** Queries as data: for watches, `waitFor` and derivations. */
import type { Key, Query, Table } from './types.ts';

/** Makes queries as data, for `select`, `visit` and `watch`. Each takes what the reader's method of its name takes. */
export const query = {
  all: <T>(table: Table<T>): Query<T> => ({ table, kind: 'all' }),
  get: <T>(table: Table<T>, key: Key): Query<T> => ({ table, kind: 'get', key }),
  list: <T, I extends string>(table: Table<T, I>, index: NoInfer<I>, key: Key): Query<T> => ({
    table,
    kind: 'list',
    index,
    key,
  }),
  prefix: <T, I extends string>(table: Table<T, I>, key: Key, index?: NoInfer<I>): Query<T> => ({
    table,
    kind: 'prefix',
    key,
    index,
  }),
  lowerBound: <T, I extends string>(table: Table<T, I>, from: Key, index?: NoInfer<I>): Query<T> => ({
    table,
    kind: 'range',
    from,
    index,
  }),
  range: <T, I extends string>(table: Table<T, I>, from: Key, to: Key | undefined, index?: NoInfer<I>): Query<T> => ({
    table,
    kind: 'range',
    from,
    to,
    index,
  }),
  lookup: <T, I extends string>(table: Table<T, I>, index: NoInfer<I>, key: Key): Query<T> => ({
    table,
    kind: 'lookup',
    index,
    key,
  }),
  covering: <T, I extends string>(table: Table<T, I>, index: NoInfer<I>, key: Key): Query<T> => ({
    table,
    kind: 'covering',
    index,
    key,
  }),
  covered: <T, I extends string>(table: Table<T, I>, index: NoInfer<I>, key: Key): Query<T> => ({
    table,
    kind: 'covered',
    index,
    key,
  }),
} as const;
