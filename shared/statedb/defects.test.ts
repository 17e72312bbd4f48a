/**
 * What was found wrong in cilium/statedb, the model of this library, and must not be wrong here. The seventh, two
 * reconcilers on one object, is a test of @weir/reconciler.
 */
import { describe, expect, it } from '@jest/globals';
import {
  createStateDB,
  keys,
  query,
  ReentrantWriteError,
  StreamDisposedError,
  type Table,
  UniqueIndexError,
} from './index.ts';

interface Row {
  readonly id: string;
  readonly n?: number;
}

function setUp() {
  const db = createStateDB({ freeze: true });
  const table = db.table<Row>({
    name: 'rows',
    key: (row) => row.id,
    indexes: [
      { name: 'n', unique: true, keys: ({ n }) => (n === undefined ? [] : [keys.int(n)]) },
      { name: 'order', keys: ({ n }) => (n === undefined ? [] : [keys.int(n, 16)]) },
    ],
  });
  return { db, table };
}

const stop = new Error('abort');

describe('known defects of the model', () => {
  it('a table or index registered during a write transaction does not vanish at its commit: it is refused', () => {
    const { db, table } = setUp();
    let late: Table<Row> | undefined;
    db.write([table], (txn) => {
      txn.upsert(table, { id: 'a', n: 1 });
      expect(() => {
        late = db.table<Row>({ name: 'late', key: (row) => row.id });
      }).toThrow(ReentrantWriteError);
      expect(() => db.addIndex(table, { name: 'late', keys: (row) => [row.id] })).toThrow(ReentrantWriteError);
    });
    expect(late).toBeUndefined();
    // Nothing of the attempt is left: both can be registered now, and stay through the next commits.
    const then = db.table<Row>({ name: 'late', key: (row) => row.id });
    db.addIndex(table, { name: 'late', keys: (row) => [row.id] });
    db.write([table], (txn) => txn.upsert(table, { id: 'b' }));
    db.write([then], (txn) => txn.upsert(then, { id: 'c' }));
    using snapshot = db.read();
    expect([...snapshot.all(then)]).toEqual([{ id: 'c' }]);
    expect([...snapshot.list(table, 'late', 'b')]).toEqual([{ id: 'b' }]);
    expect(db.tables().map(({ name, rows, indexes }) => [name, rows, indexes])).toEqual([
      ['rows', 2, ['n', 'order', 'late']],
      ['late', 1, []],
    ]);
  });

  it('a table registered while snapshots are open is there for later ones, empty for them', () => {
    const { db, table } = setUp();
    using before = db.read();
    const late = db.table<Row>({ name: 'late', key: (row) => row.id });
    expect([[...before.all(late)], before.count(late), before.revision(late)]).toEqual([[], 0, 0]);
    db.write([late, table], (txn) => txn.upsert(late, { id: 'a' }));
    using after = db.read();
    expect([before.count(late), after.count(late)]).toEqual([0, 1]);
  });

  it('changes() in an aborted transaction leaves no stream behind, and the next one sees deletes', () => {
    const { db, table } = setUp();
    db.write([table], (txn) => txn.upsert(table, { id: 'a' }));
    let aborted = db.changes(table);
    aborted[Symbol.dispose]();
    expect(() =>
      db.write([table], () => {
        aborted = db.changes(table);
        expect(aborted.next()).toHaveLength(1);
        throw stop;
      }),
    ).toThrow(stop);
    expect(db.stats().streams).toBe(0);
    expect(() => aborted.next()).toThrow(StreamDisposedError);
    expect(() => aborted.watch()).toThrow(StreamDisposedError);
    expect(() => aborted[Symbol.dispose]()).not.toThrow();
    using next = db.changes(table);
    next.next();
    db.write([table], (txn) => txn.delete(table, 'a'));
    expect(next.next()).toEqual([{ row: { id: 'a' }, revision: 2, deleted: true }]);
    expect(db.stats()).toMatchObject({ streams: 1, deleteMarkers: 0 });
  });

  it('changes() in a transaction that commits goes on after it, with deletes', () => {
    const { db, table } = setUp();
    db.write([table], (txn) => txn.upsert(table, { id: 'a' }));
    using stream = db.write([table], (txn) => {
      const opened = db.changes(table);
      expect(opened.next()).toHaveLength(1);
      txn.delete(table, 'a');
      expect(opened.next()).toEqual([]);
      return opened;
    });
    expect(stream.next()).toEqual([{ row: { id: 'a' }, revision: 2, deleted: true }]);
  });

  it('an initialiser marked in an aborted transaction is not marked, and can be marked again', () => {
    const { db, table } = setUp();
    const done = db.initialiser(table, 'source');
    const watch = db.initialisedWatch(table);
    expect(() =>
      db.write([table], (txn) => {
        done(txn);
        expect(txn.initialised(table)).toBe(true);
        throw stop;
      }),
    ).toThrow(stop);
    expect([watch.fired, db.pendingInitialisers(table)]).toEqual([false, ['source']]);
    db.write([table], done);
    expect([watch.fired, db.pendingInitialisers(table)]).toEqual([true, []]);
  });

  it('a unique index is enforced, also within one transaction, and the error names index, key and both rows', () => {
    const { db, table } = setUp();
    db.write([table], (txn) => txn.upsert(table, { id: 'holder', n: 5 }));
    const key = keys.int(5);
    const refused = expect.objectContaining({ code: 'ERR_STATEDB_UNIQUE_INDEX', table: 'rows', index: 'n', key });
    db.write([table], (txn) => {
      for (const write of [
        () => txn.upsert(table, { id: 'writer', n: 5 }),
        () => txn.insert(table, { id: 'writer', n: 5 }),
        () => txn.modify(table, { id: 'writer', n: 5 }, (_, row) => row),
        () => txn.compareAndSwap(table, 0, { id: 'writer', n: 5 }),
      ]) {
        expect(write).toThrow(refused);
        expect(write).toThrow(UniqueIndexError);
        expect(write).toThrow(/"n".*"holder".*"writer"/);
      }
      txn.upsert(table, { id: 'writer', n: 6 });
      expect(() =>
        txn.edit(table, 'writer', (draft) => {
          (draft as { n: number }).n = 5;
        }),
      ).toThrow(UniqueIndexError);
      expect(txn.get(table, 'writer')).toEqual({ id: 'writer', n: 6 });
      txn.delete(table, 'holder');
      txn.upsert(table, { id: 'writer', n: 5 });
    });
    using snapshot = db.read();
    expect([...snapshot.list(table, 'n', key)]).toEqual([{ id: 'writer', n: 5 }]);
    expect([...snapshot.list(table, 'n', keys.int(6))]).toEqual([]);
  });

  it('negative integers come before positive ones', () => {
    const { db, table } = setUp();
    const numbers = [3, -1, 0, -32768, 32767, -2, 1, 256, -256];
    db.write([table], (txn) => {
      for (const n of numbers) txn.upsert(table, { id: `${n}`, n });
    });
    using snapshot = db.read();
    const sorted = numbers.toSorted((a, b) => a - b);
    for (const index of ['n', 'order']) {
      expect(Array.from(snapshot.prefix(table, '', index), ({ n }) => n)).toEqual(sorted);
    }
    expect(Array.from(snapshot.range(table, keys.int(-2), keys.int(2), 'n'), ({ n }) => n)).toEqual([-2, -1, 0, 1]);
  });

  it('compare-and-swap with revision 0 inserts only where nothing is', () => {
    const { db, table } = setUp();
    db.write([table], (txn) => {
      expect(txn.compareAndSwap(table, 0, { id: 'a', n: 1 })).toBe(true);
      expect(txn.compareAndSwap(table, 0, { id: 'a', n: 2 })).toBe(false);
    });
    db.write([table], (txn) => {
      expect(txn.compareAndSwap(table, 0, { id: 'a', n: 3 })).toBe(false);
      expect(txn.compareAndSwap(table, 7, { id: 'b', n: 3 })).toBe(false);
      expect(txn.compareAndDelete(table, 0, 'a')).toBe(false);
      expect(txn.compareAndDelete(table, 0, 'b')).toBe(false);
    });
    using snapshot = db.read();
    expect([...snapshot.all(table)]).toEqual([{ id: 'a', n: 1 }]);
    expect(snapshot.revision(table)).toBe(1);
  });

  it('a compare-and-swap or compare-and-delete that fails wakes nobody and gives no revision', () => {
    const { db, table } = setUp();
    db.write([table], (txn) => txn.upsert(table, { id: 'a', n: 1 }));
    using snapshot = db.read();
    const watches = [
      query.all(table),
      query.get(table, 'a'),
      query.get(table, 'b'),
      query.list(table, 'n', keys.int(1)),
      query.lowerBound(table, ''),
    ].map((asked) => snapshot.watch(asked).watch);
    using stream = db.changes(table);
    stream.next();
    const pending = stream.watch();
    db.write([table], (txn) => {
      expect(txn.compareAndSwap(table, 9, { id: 'a', n: 2 })).toBe(false);
      expect(txn.compareAndSwap(table, 9, { id: 'b', n: 2 })).toBe(false);
      expect(txn.compareAndDelete(table, 9, 'a')).toBe(false);
    });
    expect([...watches, pending].map(({ fired }) => fired)).toEqual([false, false, false, false, false, false]);
    expect(db.stats().watchesFired).toBe(0);
    expect(db.tables()[0]?.revision).toBe(1);
  });
});
