import { describe, expect, it } from '@jest/globals';
import { createStateDB } from '../index.ts';
import { printTable } from './print.ts';

interface Row {
  readonly id: string;
  readonly n?: number;
  readonly more?: unknown;
}

function setUp(rows: readonly Row[], columns?: { readonly [heading: string]: (row: Row) => unknown }) {
  const db = createStateDB({ freeze: true });
  const table = db.table<Row>({ name: 'rows', key: (row) => row.id, ...(columns && { columns }) });
  db.write([table], (txn) => {
    for (const row of rows) txn.upsert(table, row);
  });
  return { db, table };
}

describe('printTable', () => {
  it('aligns the top-level properties of the rows, in the order of keys', () => {
    const { db, table } = setUp([
      { id: 'b', n: 1 },
      { id: 'long', more: [1, 2] },
      { id: 'a', n: 100, more: { x: 'y' } },
    ]);
    using snapshot = db.read();
    expect(printTable(snapshot, table).split('\n')).toEqual([
      'id    n    more',
      'a     100  x=y',
      'b     1',
      'long       1,2',
    ]);
  });

  it('prefers the columns given, then those of the table', () => {
    const { db, table } = setUp([{ id: 'a', n: 2 }], { NAME: (row) => row.id, TWICE: (row) => (row.n ?? 0) * 2 });
    using snapshot = db.read();
    expect(printTable(snapshot, table)).toBe('NAME  TWICE\na     4');
    expect(printTable(snapshot, table, { columns: { N: (row) => row.n } })).toBe('N\n2');
  });

  it('stops at the limit and says so; an empty table is its headings', () => {
    const { db, table } = setUp(
      Array.from({ length: 5 }, (_, i) => ({ id: `${i}` })),
      { ID: (row) => row.id },
    );
    using snapshot = db.read();
    expect(printTable(snapshot, table, { limit: 2 })).toBe('ID\n0\n1\n... and 3 more');
    expect(printTable(snapshot, table, { limit: 5 })).toBe('ID\n0\n1\n2\n3\n4');
    db.write([table], (txn) => {
      txn.deleteAll(table);
      expect(printTable(txn, table)).toBe('ID');
    });
  });

  it('cuts cells, not headings, that are longer than the width given', () => {
    const { db, table } = setUp([{ id: 'abc' }, { id: 'abcd' }], { HEADING: (row) => row.id });
    using snapshot = db.read();
    expect(printTable(snapshot, table, { width: 3 })).toBe('HEADING\nabc\nab…');
    expect(printTable(snapshot, table, { width: 1 })).toBe('HEADING\n…\n…');
  });

  it('keeps every cell on one line and control characters from the terminal', () => {
    const cells: readonly (readonly [unknown, string])[] = [
      ['a\nb\u001b[31m\u0000\u009b', 'a\\x0ab\\x1b[31m\\x00\\x9b'],
      [undefined, ''],
      [null, 'null'],
      [5n, '5'],
      [true, 'true'],
      [-1.5, '-1.5'],
      [() => {}, '[function]'],
      [new RangeError('too\nmany'), 'too\\x0amany'],
      [new Date(0), '1970-01-01T00:00:00.000Z'],
      [new Date(Number.NaN), 'invalid date'],
      [Uint8Array.of(1, 255), '0x01ff'],
      [new Set(['x', 'y']), 'x,y'],
      [new Map([['k', [1]]]), 'k=1'],
    ];
    const { db, table } = setUp([{ id: 'only' }]);
    using snapshot = db.read();
    for (const [value, text] of cells) {
      expect(printTable(snapshot, table, { columns: { C: () => value } })).toBe(`C\n${text}`);
    }
  });
});
