import { describe, expect, it } from '@jest/globals';
import fc from 'fast-check';
import { createStateDB, KeyFunctionError, keys, RowExistsError, UniqueIndexError } from '../index.ts';
import { UnserialisableError } from './codec.ts';
import { dump, RestoreError, restore } from './dump.ts';

interface Row {
  readonly id: string;
  readonly owner?: string;
  readonly data?: unknown;
}

function setUp(...rows: readonly Row[]) {
  const db = createStateDB({ freeze: true });
  const table = db.table<Row>({
    name: 'rows',
    key: (row) => row.id,
    indexes: [{ name: 'owner', unique: true, keys: (row) => (row.owner === undefined ? [] : [row.owner]) }],
  });
  db.write([table], (txn) => {
    for (const row of rows) txn.upsert(table, row);
  });
  return { db, table };
}

const value = fc.anything({
  withBigInt: true,
  withMap: true,
  withSet: true,
  withDate: true,
  withNullPrototype: true,
  withTypedArray: false,
});
const withBytes = fc.oneof(
  value,
  fc.uint8Array(),
  fc.dictionary(fc.constantFrom('$', '__proto__', 'v', ''), value),
  fc.constantFrom(-0, Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY),
);

describe('dump and restore', () => {
  it('writes what it is, then a line a row with its revision', () => {
    const { db, table } = setUp({ id: 'b' }, { id: 'a', data: new Map([[1n, -0]]) });
    using snapshot = db.read();
    expect([...dump(snapshot, table)]).toEqual([
      '{"statedb":1,"table":"rows","revision":2,"rows":2}',
      '{"revision":2,"row":{"id":"a","data":{"$":"map","v":[[{"$":"bigint","v":"1"},{"$":"number","v":"-0"}]]}}}',
      '{"revision":1,"row":{"id":"b"}}',
    ]);
  });

  it('restores every kind of value exactly', () => {
    fc.assert(
      fc.property(fc.array(withBytes, { maxLength: 4 }), (values) => {
        const from = setUp(...values.map((data, i): Row => ({ id: `${i}`, data })));
        const to = setUp({ id: 'gone', owner: 'x' });
        using there = from.db.read();
        restore(to.db, to.table, [...dump(there, from.table), '']);
        using here = to.db.read();
        expect([...here.all(to.table)].map((row) => row.data)).toStrictEqual(values);
      }),
      { numRuns: 200 },
    );
  });

  it('keeps name and message of an error', () => {
    const from = setUp({ id: 'a', data: new RangeError('too many') });
    using there = from.db.read();
    const to = setUp();
    restore(to.db, to.table, dump(there, from.table));
    using here = to.db.read();
    expect(here.get(to.table, 'a')?.data).toEqual(expect.objectContaining({ name: 'RangeError', message: 'too many' }));
  });

  it('replaces the rows in one transaction, unique keys swapped or not', () => {
    const { db, table } = setUp({ id: 'a', owner: 'x' }, { id: 'b', owner: 'y' });
    using before = db.read();
    const lines = [...dump(before, table)];
    db.write([table], (txn) => {
      txn.delete(table, 'b');
      txn.upsert(table, { id: 'a', owner: 'y' });
      txn.upsert(table, { id: 'c', owner: 'x' });
    });
    using stream = db.changes(table);
    stream.next();
    restore(db, table, lines);
    using after = db.read();
    expect([...after.all(table)]).toEqual([...before.all(table)]);
    expect(new Map(stream.next().map(({ row, deleted }) => [row.id, deleted]))).toEqual(
      new Map([
        ['a', false],
        ['b', false],
        ['c', true],
      ]),
    );
  });

  const head = (rows: number, more = {}) => JSON.stringify({ statedb: 1, table: 'rows', revision: 1, rows, ...more });
  const row = (inner: unknown) => JSON.stringify({ revision: 1, row: inner });
  const bad: readonly (readonly [string, readonly string[], number, string])[] = [
    ['nothing', [], 1, 'no line that says what this is'],
    ['a row without a head', [row({ id: 'a' })], 1, 'is no head of a dump'],
    ['another format', [head(0, { statedb: 2 })], 1, 'format 2 is not known'],
    ['another table', [head(0, { table: 'pods' })], 1, 'is the dump of table "pods"'],
    ['a head without a count', [head(0, { rows: undefined })], 1, 'no rows'],
    ['text', [head(1), '', 'x'], 3, 'JSON'],
    ['a line that is no row', [head(1), '[]'], 2, 'is no row'],
    [
      'a tag that is not known',
      [head(1), row({ id: 'a', data: { $: 'regexp', v: 'x' } })],
      2,
      '"regexp" is no known tag',
    ],
    [
      'a tag with a wrong value',
      [head(1), row({ id: 'a', data: { $: 'bytes', v: [256] } })],
      2,
      '256 is not an integer',
    ],
    ['an integer that is none', [head(1), row({ id: 'a', data: { $: 'bigint', v: 'x' } })], 2, 'x'],
    ['an end before its end', [head(2), row({ id: 'a' })], 2, 'of 2 rows but ends after 1'],
  ];
  it.each(bad)('refuses %s and changes nothing', (_, lines, line, problem) => {
    const { db, table } = setUp({ id: 'kept' });
    const failed = (): void => restore(db, table, lines);
    expect(failed).toThrow(RestoreError);
    expect(failed).toThrow(problem);
    expect(failed).toThrow(expect.objectContaining({ code: 'ERR_STATEDB_RESTORE', line }));
    using after = db.read();
    expect([[...after.all(table)], after.revision(table)]).toEqual([[{ id: 'kept' }], 1]);
  });

  it.each([
    ['no key', row({ data: 1 }), KeyFunctionError],
    ['a key that is there', row({ id: 'a' }), RowExistsError],
    ['a unique key that is taken', row({ id: 'b', owner: 'x' }), UniqueIndexError],
  ])('refuses a row with %s, with the error of the table as its cause', (_, line, cause) => {
    const { db, table } = setUp({ id: 'kept' });
    const failed = (): void => restore(db, table, [head(2), row({ id: 'a', owner: 'x' }), line]);
    expect(failed).toThrow(expect.objectContaining({ line: 3, cause: expect.any(cause) }));
    using after = db.read();
    expect([...after.all(table)]).toEqual([{ id: 'kept' }]);
  });

  it('names the place of what has no form as JSON', () => {
    const loop: unknown[] = [];
    loop.push(loop);
    const cases: readonly (readonly [unknown, string])[] = [
      [{ deep: [() => {}] }, 'row.data.deep[0] is a function'],
      [Symbol('s'), 'row.data is a symbol'],
      [/x/, 'row.data is a RegExp'],
      [Uint16Array.of(1), 'row.data is a Uint16Array'],
      [loop, 'row.data[0] is part of itself'],
    ];
    for (const [data, problem] of cases) {
      const { db, table } = setUp({ id: 'a', data });
      using snapshot = db.read();
      const lines = (): string[] => [...dump(snapshot, table)];
      expect(lines).toThrow(UnserialisableError);
      expect(lines).toThrow(`table "rows", row "a": ${problem}`);
    }
  });

  it('of keys in bytes', () => {
    const from = createStateDB();
    const make = (db: typeof from) => db.table<{ n: number }>({ name: 'n', key: ({ n }) => keys.int(n) });
    const table = make(from);
    from.write([table], (txn) => {
      for (const n of [-1, 0, 255]) txn.upsert(table, { n });
    });
    const to = createStateDB();
    const copy = make(to);
    using snapshot = from.read();
    restore(to, copy, dump(snapshot, table));
    using after = to.read();
    expect([...after.all(copy)]).toEqual([{ n: -1 }, { n: 0 }, { n: 255 }]);
  });
});
