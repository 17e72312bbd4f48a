/** What is refused: each by a named class with a stable code, and nothing is changed. */
import { describe, expect, it } from '@jest/globals';
import * as api from './index.ts';
import {
  AsyncWriteError,
  createStateDB,
  DerivationDisposedError,
  DeriveInputError,
  DuplicateTableError,
  InitialiserError,
  InvalidKeyError,
  InvalidLimitError,
  InvalidRevisionError,
  InvalidTableSpecError,
  KeyChangedError,
  KeyFunctionError,
  keys,
  MutatedRowError,
  ReentrantWriteError,
  RestoreError,
  RevisionGoneError,
  RowExistsError,
  RowNotFoundError,
  type Snapshot,
  SnapshotDisposedError,
  StateDBError,
  StreamDisposedError,
  TableNotInTransactionError,
  TransactionClosedError,
  UniqueIndexError,
  UnknownIndexError,
  UnknownTableError,
  UnserialisableError,
  type WriteTxn,
} from './index.ts';

interface Row {
  id: string;
  tag?: string;
  inner?: { n: number };
}

function setUp() {
  const db = createStateDB({ freeze: true, onLeak: () => {} });
  const spec = {
    key: (row: Row) => row.id,
    indexes: [
      { name: 'tag', unique: true, keys: ({ tag }: Row) => (tag === undefined ? [] : [tag]) },
      { name: 'net', kind: 'lpm' as const, keys: ({ tag }: Row) => (tag?.startsWith('!') ? [tag] : []) },
    ],
  };
  const table = db.table<Row>({ name: 'rows', ...spec });
  const other = db.table<Row>({ name: 'other', ...spec });
  db.write([table], (txn) => txn.upsert(table, { id: 'kept', tag: 'k', inner: { n: 1 } }));
  return { db, table, other };
}

type World = ReturnType<typeof setUp>;
/** In a transaction that has also written something, which must be gone. */
const inWrite =
  (does: (txn: WriteTxn, world: World) => unknown) =>
  (world: World): unknown =>
    world.db.write([world.table], (txn) => {
      txn.upsert(world.table, { id: 'half' });
      return does(txn, world);
    });
const any = <T>(value: unknown): T => value as T;
/** A key function that gives this. */
const gives = (value: unknown) => () => any<string>(value);
const throws = (): never => {
  throw new Error('in the key function');
};
function* throwsLater(): Generator<string> {
  yield 'x';
  throws();
}
const upserting =
  (spec: Partial<api.TableSpec<Row>>) =>
  ({ db }: World): unknown => {
    const odd = db.table<Row>({ name: 'odd', key: (row) => row.id, ...spec });
    try {
      return db.write([odd], (txn) => txn.upsert(odd, { id: 'a' }));
    } finally {
      using after = db.read();
      expect([after.count(odd), after.revision(odd)]).toEqual([0, 0]);
    }
  };
const indexed = (value: unknown) => upserting({ indexes: [{ name: 'i', keys: any(gives(value)) }] });

const none = (name: string) => ({ name, keys: () => [] });
const later = async () => ({ id: 'kept' });
/** Within a snapshot. */
const reading =
  (does: (snapshot: Snapshot, table: World['table'], world: World) => unknown) =>
  (world: World): unknown => {
    using snapshot = world.db.read();
    return does(snapshot, world.table, world);
  };
const disposed = (does: Parameters<typeof reading>[0]) =>
  reading((snapshot, table, world) => {
    snapshot[Symbol.dispose]();
    return does(snapshot, table, world);
  });

type Does = (world: World) => unknown;
/** Of each error class: its code, and what it is the answer to. */
const CASES = new Map<abstract new (...args: never[]) => Error, readonly [string, Readonly<Record<string, Does>>]>([
  [
    DuplicateTableError,
    [
      'ERR_STATEDB_DUPLICATE_TABLE',
      {
        'a second table of a name': ({ db }) => db.table({ name: 'rows', key: String }),
      },
    ],
  ],
  [
    InvalidTableSpecError,
    [
      'ERR_STATEDB_INVALID_TABLE_SPEC',
      {
        'two indexes of a name': ({ db }) => db.table({ name: 't', key: String, indexes: [none('i'), none('i')] }),
        'an index of a name that is taken': ({ db, table }) => db.addIndex(table, none('tag')),
        'a table without a name': ({ db }) => db.table({ name: '', key: String }),
        'a table without a key function': ({ db }) => db.table({ name: 't', key: any<() => string>(undefined) }),
        'an index without keys': ({ db, table }) => db.addIndex(table, { name: 'i', keys: any<() => string[]>('x') }),
        'a lookup in an index without prefixes': reading((snapshot, table) =>
          snapshot.lookup(table, 'tag', keys.address([1])),
        ),
        'a range of prefixes': reading((snapshot, table) => snapshot.lowerBound(table, '', 'net')),
      },
    ],
  ],
  [
    UnknownTableError,
    [
      'ERR_STATEDB_UNKNOWN_TABLE',
      {
        'a table of another StateDB': ({ table }) => createStateDB().changes(table),
        'a copy of a table': reading((snapshot, table) => snapshot.count({ ...table })),
        'no table': reading((snapshot) => snapshot.count(any<api.Table<Row>>(undefined))),
      },
    ],
  ],
  [
    UnknownIndexError,
    [
      'ERR_STATEDB_UNKNOWN_INDEX',
      {
        'an index that is not': reading((snapshot, table) => snapshot.list(table, 'zone', 'x')),
        'an index that was not yet': reading((snapshot, table, { db }) => {
          db.addIndex(table, none('late'));
          return snapshot.list(table, 'late', 'x');
        }),
      },
    ],
  ],
  [
    KeyFunctionError,
    [
      'ERR_STATEDB_KEY_FUNCTION',
      {
        'index keys that throw half-way': upserting({ indexes: [{ name: 'i', keys: throwsLater }] }),
        'a key function that throws': upserting({ key: throws }),
        'a key function that gives nothing': upserting({ key: gives(undefined) }),
        'a key function that gives a number': upserting({ key: gives(1) }),
        'index keys that throw': upserting({ indexes: [{ name: 'i', keys: throws }] }),
        'index keys that are nothing': indexed(undefined),
        'index keys that are one string': indexed('abc'),
        'an index key that is nothing': indexed([undefined]),
        'an index key that is a number': indexed(['a', 1]),
        'a late index whose keys throw': ({ db, table }) => db.addIndex(table, { name: 'i', keys: throws }),
        'a row that is nothing': inWrite((txn, { table }) => txn.upsert(table, any(undefined))),
      },
    ],
  ],
  [
    InvalidKeyError,
    [
      'ERR_STATEDB_INVALID_KEY',
      {
        'a lookup of what is no prefix': reading((snapshot, table) => [...snapshot.lookup(table, 'net', 'x')]),
        'what covers no prefix': reading((snapshot, table) => [...snapshot.covering(table, 'net', 'x')]),
        NaN: () => keys.int(Number.NaN),
        'a fraction': () => keys.uint(1.5),
        infinity: () => keys.int(Number.NEGATIVE_INFINITY),
        'an unsafe integer': () => keys.int(2 ** 53),
        'a negative number as unsigned': () => keys.uint(-1),
        'a negative bigint as unsigned': () => keys.uint(-1n),
        'a bigint of 65 bits': () => keys.uint(1n << 64n),
        'a signed bigint beyond 64 bits': () => keys.int(1n << 63n),
        'an integer beyond its width': () => keys.int(128, 8),
        'an integer below its width': () => keys.int(-32769, 16),
        'an unsigned integer beyond its width': () => keys.uint(2 ** 32, 32),
        'a width that is none': () => keys.int(1, any(12)),
        'a number that is text': () => keys.int(any('7')),
        'an address of no bytes': () => keys.address([]),
        'an address of 32 bytes': () => keys.address(new Uint8Array(32)),
        'a byte of 256': () => keys.address([256]),
        'a byte that is NaN': () => keys.address([Number.NaN]),
        'a prefix longer than its address': () => keys.prefix([1, 2], 17),
        'a prefix of a negative length': () => keys.prefix([1, 2], -1),
        'an index key that is no prefix': inWrite((txn, { table }) => txn.upsert(table, { id: 'a', tag: '!x' })),
        'what is in what is no prefix': reading((snapshot, table) => [...snapshot.covered(table, 'net', 'x')]),
        'a scan from what is no key': reading((snapshot, table) => snapshot.lowerBound(table, any(1))),
        'a range to what is no key': reading((snapshot, table) => snapshot.range(table, '', any(null))),
        'a prefix that is no key': reading((snapshot, table) => snapshot.prefix(table, any(undefined))),
        'a list of what is no key': reading((snapshot, table) => snapshot.list(table, 'tag', any(1))),
      },
    ],
  ],
  [
    UniqueIndexError,
    [
      'ERR_STATEDB_UNIQUE_INDEX',
      {
        'a unique key that is taken': inWrite((txn, { table }) => txn.upsert(table, { id: 'a', tag: 'k' })),
        'a late index that two rows break': ({ db, other }) => {
          db.write([other], (txn) => {
            txn.upsert(other, { id: 'a' });
            txn.upsert(other, { id: 'b' });
          });
          try {
            db.addIndex(other, { name: 'all', unique: true, keys: () => ['same'] });
          } finally {
            expect(db.tables()[1]?.indexes).toEqual(['tag', 'net']);
          }
        },
      },
    ],
  ],
  [
    RowExistsError,
    [
      'ERR_STATEDB_ROW_EXISTS',
      {
        'an insert of what is there': inWrite((txn, { table }) => txn.insert(table, { id: 'kept' })),
      },
    ],
  ],
  [
    RowNotFoundError,
    [
      'ERR_STATEDB_ROW_NOT_FOUND',
      {
        'an edit of what is not': inWrite((txn, { table }) => txn.edit(table, 'none', () => {})),
      },
    ],
  ],
  [
    KeyChangedError,
    [
      'ERR_STATEDB_KEY_CHANGED',
      {
        'an edit of the key': inWrite((txn, { table }) =>
          txn.edit(table, 'kept', (draft) => {
            draft.id = 'x';
          }),
        ),
        'a merge that changes the key': inWrite((txn, { table }) =>
          txn.modify(table, { id: 'kept' }, () => ({ id: 'x' })),
        ),
      },
    ],
  ],
  [
    AsyncWriteError,
    [
      'ERR_STATEDB_ASYNC_WRITE',
      {
        'an asynchronous edit': inWrite((txn, { table }) => txn.edit(table, 'kept', any(later))),
        'an asynchronous merge': inWrite((txn, { table }) => txn.modify(table, { id: 'kept' }, any(later))),
        'an asynchronous write': ({ db, table }) => db.write([table], any(later)),
        'a write that gives a promise': inWrite(() => Promise.reject(new Error('later'))),
      },
    ],
  ],
  [
    ReentrantWriteError,
    [
      'ERR_STATEDB_REENTRANT_WRITE',
      {
        'a write in a write': inWrite((_, { db, table }) => db.write([table], () => {})),
        'a write of other tables in a write': inWrite((_, { db, other }) => db.write([other], () => {})),
        'a table in a write': inWrite((_, { db }) => db.table({ name: 't', key: String })),
        'an index in a write': inWrite((_, { db, table }) => db.addIndex(table, none('i'))),
        'an initialiser of a table that the write does not name': inWrite((_, { db, other }) =>
          db.initialiser(other, 'i'),
        ),
      },
    ],
  ],
  [
    TableNotInTransactionError,
    [
      'ERR_STATEDB_TABLE_NOT_IN_TRANSACTION',
      {
        'an upsert': inWrite((txn, { other }) => txn.upsert(other, { id: 'a' })),
        'a delete': inWrite((txn, { other }) => txn.delete(other, 'a')),
        'a deleteAll': inWrite((txn, { other }) => txn.deleteAll(other)),
        'an initialiser done': ({ db, table, other }) => db.write([table], db.initialiser(other, 'i')),
      },
    ],
  ],
  [
    TransactionClosedError,
    [
      'ERR_STATEDB_TRANSACTION_CLOSED',
      {
        'a write after the transaction': ({ db, table }) => db.write([table], (txn) => txn).upsert(table, { id: 'a' }),
        'a read after the transaction': ({ db, table }) => db.write([table], (txn) => txn).get(table, 'kept'),
        'an iterator after the transaction': ({ db, table }) => db.write([table], (txn) => txn.all(table)).next(),
      },
    ],
  ],
  [
    SnapshotDisposedError,
    [
      'ERR_STATEDB_SNAPSHOT_DISPOSED',
      {
        'a read': disposed((snapshot, table) => snapshot.get(table, 'kept')),
        'a visit': disposed((snapshot, table) => snapshot.visit({ table, kind: 'all' }, () => undefined)),
        'a scan': disposed((snapshot, table) => snapshot.lookup(table, 'net', keys.address([1]))),
        'a watch': disposed((snapshot, table) => snapshot.watch({ table, kind: 'all' })),
        'an iterator': reading((snapshot, table) => {
          const rows = snapshot.prefix(table, '', 'tag');
          snapshot[Symbol.dispose]();
          return rows.next();
        }),
      },
    ],
  ],
  [
    StreamDisposedError,
    [
      'ERR_STATEDB_STREAM_DISPOSED',
      {
        'a pull': ({ db, table }) => {
          const stream = db.changes(table);
          stream[Symbol.dispose]();
          return stream.next();
        },
      },
    ],
  ],
  [
    InvalidLimitError,
    [
      'ERR_STATEDB_INVALID_LIMIT',
      {
        'a limit of none': ({ db, table }) => db.changes(table).next(0),
        'a limit that is NaN': ({ db, table }) => db.changes(table).next(Number.NaN),
      },
    ],
  ],
  [
    InvalidRevisionError,
    [
      'ERR_STATEDB_INVALID_REVISION',
      {
        'a revision to come': ({ db, table }) => db.changes(table, { from: 2 }),
        'a revision below 0': ({ db, table }) => db.changes(table, { from: -1 }),
        'a revision that is NaN': ({ db, table }) => db.changes(table, { from: Number.NaN }),
      },
    ],
  ],
  [
    RevisionGoneError,
    [
      'ERR_STATEDB_REVISION_GONE',
      {
        'deletes that are forgotten': ({ db, other }) => {
          db.write([other], (txn) => {
            txn.upsert(other, { id: 'a' });
            txn.upsert(other, { id: 'b' });
          });
          db.write([other], (txn) => txn.delete(other, 'a'));
          return db.changes(other, { from: 1 });
        },
      },
    ],
  ],
  [
    InitialiserError,
    [
      'ERR_STATEDB_INITIALISER',
      {
        'a second one of a name': ({ db, other }) => {
          db.initialiser(other, 'i');
          return db.initialiser(other, 'i');
        },
        'one that comes too late': ({ db, other }) => {
          db.write([other], db.initialiser(other, 'i'));
          return db.initialiser(other, 'j');
        },
        'one done outside of a write': ({ db, other }) => {
          const done = db.initialiser(other, 'i');
          done(db.write([other], (txn) => txn));
        },
        'one done in the write of another StateDB': ({ db, other }) => {
          const done = db.initialiser(other, 'i');
          createStateDB().write([], done);
        },
      },
    ],
  ],
]);

describe('bad input', () => {
  const each = [...CASES].flatMap(([error, [code, cases]]) =>
    Object.entries(cases).map(([what, does]) => ({ error, code, what, does })),
  );
  it.each(each)('$code: $what', ({ does, error, code }) => {
    const world = setUp();
    const { db, table } = world;
    using before = db.read();
    using stream = db.changes(table);
    stream.next();
    const { watch } = before.watch({ table, kind: 'all' });
    let thrown: unknown;
    try {
      does(world);
    } catch (caught) {
      thrown = caught;
    }
    expect(thrown).toBeInstanceOf(error);
    expect(thrown).toBeInstanceOf(StateDBError);
    expect(thrown).toMatchObject({ name: error.name, code });
    expect((thrown as Error).message.length).toBeGreaterThan(20);
    using after = db.read();
    expect([...after.all(table)]).toEqual([{ id: 'kept', tag: 'k', inner: { n: 1 } }]);
    expect([after.revision(table), watch.fired, stream.next()]).toEqual([1, false, []]);
    // Whoever comes next finds all in order.
    db.write([table], (txn) => txn.upsert(table, { id: 'next' }));
    expect(stream.next()).toHaveLength(1);
  });

  it('names every error class of the library', () => {
    const classes = Object.values(api).filter(
      (value) => typeof value === 'function' && value.prototype instanceof StateDBError,
    );
    // These are tested where they arise.
    const tested = new Set<unknown>([
      ...CASES.keys(),
      MutatedRowError,
      DeriveInputError,
      DerivationDisposedError,
      RestoreError,
      UnserialisableError,
    ]);
    expect(classes.filter((error) => !tested.has(error))).toEqual([]);
    expect(classes.length).toBe(tested.size);
    expect(new Set(Array.from(CASES.values(), ([code]) => code)).size).toBe(CASES.size);
  });
});

describe('rows changed after they were stored', () => {
  it('cannot be, in tests: they are frozen', () => {
    const { db, table } = setUp();
    using snapshot = db.read();
    const row = snapshot.get(table, 'kept') as Row;
    expect(() => {
      row.tag = 'x';
    }).toThrow(TypeError);
    expect(() => {
      if (row.inner !== undefined) row.inner.n = 2;
    }).toThrow(TypeError);
  });

  it.each<readonly [string, (row: Row) => void, (txn: WriteTxn, table: api.Table<Row>) => unknown]>([
    [
      'an index key, at the next upsert',
      (row) => {
        row.tag = 'x';
      },
      (txn, table) => txn.upsert(table, { id: 'a' }),
    ],
    [
      'an index key, at the delete',
      (row) => {
        row.tag = 'x';
      },
      (txn, table) => txn.delete(table, 'a'),
    ],
    [
      'an index key, at an edit',
      (row) => {
        row.tag = 'x';
      },
      (txn, table) =>
        txn.edit(table, 'a', (draft) => {
          draft.tag = 'y';
        }),
    ],
    [
      'an index key that is gone, at delete',
      (row) => {
        delete row.tag;
      },
      (txn, table) => txn.delete(table, 'a'),
    ],
    [
      'an index key, at deleteAll',
      (row) => {
        row.tag = 'x';
      },
      (txn, table) => txn.deleteAll(table),
    ],
  ])('are detected where they are not frozen: %s', (_, change, write) => {
    const db = createStateDB();
    const table = db.table<Row>({
      name: 'rows',
      key: (row) => row.id,
      indexes: [{ name: 'tag', unique: true, keys: ({ tag }) => (tag === undefined ? [] : [tag]) }],
    });
    const row: Row = { id: 'a', tag: 't' };
    db.write([table], (txn) => txn.upsert(table, row));
    change(row);
    const failed = (): unknown => db.write([table], (txn) => write(txn, table));
    expect(failed).toThrow(MutatedRowError);
    expect(failed).toThrow(expect.objectContaining({ code: 'ERR_STATEDB_MUTATED_ROW', table: 'rows', key: 'a' }));
    using snapshot = db.read();
    expect([...snapshot.list(table, 'tag', 't')]).toEqual([row]);
    expect([...snapshot.list(table, 'tag', 'x')]).toEqual([]);
    expect(snapshot.revision(table)).toBe(1);
  });
});
