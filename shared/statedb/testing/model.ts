/** For this folder's tests: a table with every kind of index, and the plainest model of what it must answer. */
import { expect } from '@jest/globals';
import fc from 'fast-check';
import type { Key, Query, Reader, Revision, StateDB, Table, WriteTxn } from '../index.ts';
import { createStateDB, keys, RowExistsError, RowNotFoundError, UniqueIndexError } from '../index.ts';

/** The bits of a prefix as text: containment is `startsWith`. */
export interface Net {
  readonly size: 4 | 16;
  readonly bits: string;
}

export interface Row {
  readonly id: string;
  readonly rank: number;
  readonly labels: readonly string[];
  /** Unique; '' is nobody's. */
  readonly owner: string;
  readonly nets: readonly Net[];
}

export function netKey({ size, bits }: Net): Key {
  const padded = bits.padEnd(size * 8, '0');
  return keys.prefix(
    Array.from({ length: size }, (_, i) => Number.parseInt(padded.slice(i * 8, i * 8 + 8), 2)),
    bits.length,
  );
}

const INDEXES = {
  rank: (row: Row) => [keys.int(row.rank)],
  label: (row: Row) => row.labels,
  owner: (row: Row) => (row.owner === '' ? [] : [row.owner]),
  net: (row: Row) => row.nets.map(netKey),
} as const;
type IndexName = keyof typeof INDEXES;

export function setUp(): { readonly db: StateDB; readonly table: Table<Row> } {
  const db = createStateDB({ freeze: true, onLeak: () => {} });
  const table = db.table<Row>({
    name: 'rows',
    key: (row) => row.id,
    equals: (a, b) => JSON.stringify(a) === JSON.stringify(b),
    indexes: [
      { name: 'rank', keys: INDEXES.rank },
      { name: 'label', keys: INDEXES.label },
      { name: 'owner', unique: true, keys: INDEXES.owner },
      { name: 'net', kind: 'lpm', keys: INDEXES.net },
    ],
  });
  return { db, table };
}

const bitsOf = (hex: string): string =>
  BigInt(`0x${hex}`)
    .toString(2)
    .padStart(hex.length * 4, '0');
const V4 = bitsOf('0a0100ff');
const V6 = bitsOf('20010db8000000010000000000000001');
export const net: fc.Arbitrary<Net> = fc
  .tuple(
    fc.boolean(),
    fc.constantFrom(0, 1, 7, 8, 9, 16, 24, 31, 32, 33, 64, 127, 128),
    // Which bit is turned over, if it is within the length.
    fc.constantFrom(0, 6, 7, 8, 23, 30, 31, 63, 127, 200),
  )
  .map(([four, length, flipped]) => {
    const base = four ? V4 : V6;
    const bits = Array.from(base.slice(0, length), (bit, i) => (i === flipped ? String(1 - Number(bit)) : bit)).join(
      '',
    );
    return { size: four ? 4 : 16, bits };
  });

const id = fc.constantFrom('a', 'b', 'c', 'aa', 'ab', 'b\u0000', '', 'b\uffff');
export const row: fc.Arbitrary<Row> = fc.record({
  id,
  rank: fc.constantFrom(-300, -1, 0, 1, 300),
  labels: fc.subarray(['', 'x', 'xy', 'y', 'x\uffff']),
  owner: fc.constantFrom('', '', '', 'o1', 'o2', 'o12'),
  nets: fc.uniqueArray(net, { maxLength: 2, selector: netKey }),
});

/** A query, as a function of the table. */
export const question: fc.Arbitrary<(table: Table<Row>) => Query<Row>> = fc.oneof(
  fc.constant((table: Table<Row>): Query<Row> => ({ table, kind: 'all' })),
  id.map(
    (key) =>
      (table: Table<Row>): Query<Row> => ({ table, kind: 'get', key }),
  ),
  row.chain((probe) =>
    fc.constantFrom<IndexName>('rank', 'label', 'owner', 'net').map((index) => (table: Table<Row>): Query<Row> => {
      const [key = keyless(index)] = INDEXES[index](probe);
      return { table, kind: 'list', index, key };
    }),
  ),
  fc.constantFrom('', 'a', 'b', 'b\u0000', '\uffff').map(
    (key) =>
      (table: Table<Row>): Query<Row> => ({ table, kind: 'prefix', key }),
  ),
  fc
    .constantFrom(
      ['', 'label'],
      ['x', 'label'],
      ['x\uffff', 'label'],
      ['o1', 'owner'],
      ['\u007f', 'rank'],
      ['', 'rank'],
    )
    .map(
      ([key = '', index]) =>
        (table: Table<Row>): Query<Row> => ({ table, kind: 'prefix', key, index }),
    ),
  fc.tuple(id, fc.option(id, { nil: undefined })).map(
    ([low, to]) =>
      (table: Table<Row>): Query<Row> => ({ table, kind: 'range', from: low, to }),
  ),
  fc
    .tuple(row, fc.option(row, { nil: undefined }), fc.constantFrom<IndexName>('rank', 'label', 'owner'))
    .map(([low, high, index]) => (table: Table<Row>): Query<Row> => {
      const [start = ''] = INDEXES[index](low);
      const to = high && (INDEXES[index](high)[0] ?? 'z');
      return { table, kind: 'range', from: start, to, index };
    }),
  fc.tuple(net, fc.constantFrom('lookup' as const, 'covering' as const, 'covered' as const)).map(
    ([asked, kind]) =>
      (table: Table<Row>): Query<Row> => ({ table, kind, index: 'net', key: netKey(asked) }),
  ),
);

function keyless(index: IndexName): Key {
  return index === 'net' ? netKey({ size: 4, bits: '' }) : '';
}

export type Operation =
  | { readonly kind: 'insert' | 'upsert' | 'modify' | 'delete'; readonly row: Row }
  | { readonly kind: 'swap' | 'drop'; readonly row: Row; readonly revision: 'right' | 'zero' | 'wrong' }
  | { readonly kind: 'edit'; readonly row: Row }
  | { readonly kind: 'clear'; readonly row: Row };

const simple = (kind: 'insert' | 'upsert' | 'modify' | 'delete' | 'edit' | 'clear') =>
  row.map((each): Operation => ({ kind, row: each }));
const compared = (kind: 'swap' | 'drop') =>
  fc
    .tuple(row, fc.constantFrom('right' as const, 'zero' as const, 'wrong' as const))
    .map(([each, revision]): Operation => ({ kind, row: each, revision }));
export const operation: fc.Arbitrary<Operation> = fc.oneof(
  { weight: 8, arbitrary: simple('upsert') },
  { weight: 2, arbitrary: simple('insert') },
  { weight: 2, arbitrary: simple('modify') },
  { weight: 5, arbitrary: simple('delete') },
  { weight: 2, arbitrary: compared('swap') },
  { weight: 2, arbitrary: compared('drop') },
  { weight: 2, arbitrary: simple('edit') },
  { weight: 1, arbitrary: simple('clear') },
);

const byId = (a: Row, b: Row): number => (a.id < b.id ? -1 : a.id > b.id ? 1 : 0);
const unique = <T>(values: Iterable<T>): T[] => [...new Set(values)];

/** The rows as a plain map, and the revisions that they must have. */
export class Model {
  readonly rows: Map<string, { readonly row: Row; readonly revision: Revision }>;
  revision: Revision;

  constructor(other?: Model) {
    this.rows = new Map(other?.rows);
    this.revision = other?.revision ?? 0;
  }

  get sorted(): Row[] {
    return Array.from(this.rows.values(), ({ row: each }) => each).sort(byId);
  }

  answer(query: Query<Row>): Row[] {
    const rows = this.sorted;
    switch (query.kind) {
      case 'all':
        return rows;
      case 'get':
        return rows.filter((each) => each.id === query.key);
      case 'list':
        return rows.filter((each) => INDEXES[query.index as IndexName](each).includes(query.key));
      case 'prefix':
        return this.#ordered(query.index, (key) => key.startsWith(query.key));
      case 'range':
        return this.#ordered(query.index, (key) => key >= query.from && (query.to === undefined || key < query.to));
      default: {
        const { kind, key } = query;
        const asked = netOf(key);
        const around = (each: Net): boolean => each.size === asked.size && asked.bits.startsWith(each.bits);
        const inside = (each: Net): boolean => each.size === asked.size && each.bits.startsWith(asked.bits);
        const hits = rows
          .flatMap((each) => each.nets.filter(kind === 'covered' ? inside : around).map((hit) => ({ hit, row: each })))
          .sort((a, b) => compareNets(a.hit, b.hit));
        const longest = hits.at(-1)?.hit.bits.length;
        return unique(
          hits.filter(({ hit }) => kind !== 'lookup' || hit.bits.length === longest).map(({ row: each }) => each),
        );
      }
    }
  }

  #ordered(index: string | undefined, wanted: (key: Key) => boolean): Row[] {
    const keysOf = index === undefined ? (each: Row) => [each.id] : INDEXES[index as IndexName];
    const found = this.sorted.flatMap((each) => [...keysOf(each)].filter(wanted).map((key) => ({ key, row: each })));
    found.sort((a, b) => (a.key < b.key ? -1 : a.key > b.key ? 1 : 0));
    return unique(found.map(({ row: each }) => each));
  }

  /** Does the operation in the transaction and here, and expects both to say the same. */
  apply(txn: WriteTxn, table: Table<Row>, op: Operation): void {
    const { kind, row: given } = op;
    const there = this.rows.get(given.id);
    if (kind === 'clear') {
      txn.deleteAll(table);
      this.revision += this.rows.size;
      this.rows.clear();
    } else if (kind === 'delete') {
      expect(txn.delete(table, given.id)).toEqual(there?.row);
      if (there !== undefined) this.#remove(given.id);
    } else if (kind === 'drop') {
      const revision = this.#revisionFor(op.revision, there?.revision ?? 0);
      const does = there !== undefined && there.revision === revision;
      expect(txn.compareAndDelete(table, revision, given.id)).toBe(does);
      if (does) this.#remove(given.id);
    } else if (kind === 'edit') {
      const edit = () =>
        txn.edit(table, given.id, (draft) => {
          (draft as { rank: number }).rank = given.rank;
          (draft.labels as string[]).splice(0, 9, ...given.labels);
        });
      if (there === undefined) expect(edit).toThrow(RowNotFoundError);
      else {
        this.#put({ ...there.row, rank: given.rank, labels: given.labels });
        expect(edit()).toEqual(this.rows.get(given.id)?.row);
      }
    } else if (kind === 'swap') {
      const revision = this.#revisionFor(op.revision, there?.revision ?? 0);
      const swap = () => txn.compareAndSwap(table, revision, given);
      if (revision !== (there?.revision ?? 0)) expect(swap()).toBe(false);
      else if (this.#taken(given)) expect(swap).toThrow(UniqueIndexError);
      else {
        expect(swap()).toBe(true);
        this.#put(given);
      }
    } else if (kind === 'insert') {
      const insert = () => txn.insert(table, given);
      if (there !== undefined) expect(insert).toThrow(RowExistsError);
      else if (this.#taken(given)) expect(insert).toThrow(UniqueIndexError);
      else {
        insert();
        this.#put(given);
      }
    } else {
      const merge = (old: Row, now: Row): Row => ({ ...now, rank: old.rank });
      const wanted = kind === 'modify' && there !== undefined ? merge(there.row, given) : given;
      const put = () => (kind === 'modify' ? txn.modify(table, given, merge) : txn.upsert(table, given));
      const same = JSON.stringify(there?.row) === JSON.stringify(wanted);
      if (!same && this.#taken(wanted)) expect(put).toThrow(UniqueIndexError);
      else {
        expect(put()).toEqual(there?.row);
        this.#put(wanted);
      }
    }
  }

  /** Everything that can be read must be what is here. */
  expectIn(reader: Reader, table: Table<Row>, queries: readonly Query<Row>[]): void {
    expect(reader.count(table)).toBe(this.rows.size);
    expect(reader.revision(table)).toBe(this.revision);
    for (const query of [{ table, kind: 'all' } as const, ...queries]) {
      const wanted = this.answer(query);
      expect([query, [...reader.select(query)]]).toEqual([query, wanted]);
      expect([...byName(reader, query)]).toEqual(wanted);
      expect(visited(reader, query)).toEqual(wanted);
      const some = wanted.slice(0, 2);
      expect(visited(reader, query, some.length)).toEqual(some);
      if (query.kind !== 'get') continue;
      const there = this.rows.get(query.key);
      expect(reader.getVersioned(table, query.key)?.revision).toBe(there?.revision);
      expect(reader.getVersioned(table, query.key)?.row).toEqual(there?.row);
      expect(reader.has(table, query.key)).toBe(there !== undefined);
    }
  }

  #revisionFor(which: 'right' | 'zero' | 'wrong', right: Revision): Revision {
    return which === 'right' ? right : which === 'zero' ? 0 : right + 1;
  }

  #taken({ id: mine, owner }: Row): boolean {
    return owner !== '' && this.sorted.some((other) => other.id !== mine && other.owner === owner);
  }

  #put(wanted: Row): void {
    if (JSON.stringify(this.rows.get(wanted.id)?.row) === JSON.stringify(wanted)) return;
    this.rows.set(wanted.id, { row: wanted, revision: ++this.revision });
  }

  #remove(key: string): void {
    this.rows.delete(key);
    this.revision++;
  }
}

/** The same by a visitor, which ends it at the row of this number. */
function visited(reader: Reader, query: Query<Row>, last?: number): Row[] {
  const rows: Row[] = [];
  reader.visit(query, (row) => {
    rows.push(row);
    return rows.length === last ? false : undefined;
  });
  return rows;
}

/** The same by the operation of the query's name. */
function byName(reader: Reader, query: Query<Row>): Iterable<Row> {
  const { table } = query;
  switch (query.kind) {
    case 'all':
      return reader.all(table);
    case 'get': {
      const found = reader.get(table, query.key);
      return found === undefined ? [] : [found];
    }
    case 'prefix':
      return reader.prefix(table, query.key, query.index);
    case 'range':
      return query.to === undefined
        ? reader.lowerBound(table, query.from, query.index)
        : reader.range(table, query.from, query.to, query.index);
    default:
      return reader[query.kind](table, query.index, query.key);
  }
}

/** Of the key back to its bits, apart from the code under test. */
function netOf(key: Key): Net {
  const bytes = Array.from(key.slice(1, -1), (unit) => unit.charCodeAt(0).toString(2).padStart(8, '0')).join('');
  return { size: key.charCodeAt(0) === 4 ? 4 : 16, bits: bytes.slice(0, key.charCodeAt(key.length - 1)) };
}

function compareNets(a: Net, b: Net): number {
  const [left, right] = [a.bits.padEnd(128, '0'), b.bits.padEnd(128, '0')];
  return left < right ? -1 : left > right ? 1 : a.bits.length - b.bits.length;
}
