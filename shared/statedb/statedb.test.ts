import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { describe, expect, it } from '@jest/globals';
import {
  createStateDB,
  InitialiserError,
  query,
  SnapshotDisposedError,
  StreamDisposedError,
  TableNotInTransactionError,
} from './index.ts';

interface Pod {
  readonly name: string;
  readonly node: string;
  readonly tags?: readonly string[];
}

function setUp() {
  const db = createStateDB({ freeze: true, onLeak: () => {} });
  const spec = { key: (pod: Pod) => pod.name, indexes: [{ name: 'node', keys: (pod: Pod) => [pod.node] }] };
  return { db, pods: db.table({ name: 'pods', ...spec }), other: db.table({ name: 'other', ...spec }) };
}

describe('write', () => {
  it.each([[0], [3], [16], [17], [2000]])(
    'a row with %s keys in an index is found by each, and by none that it lost',
    (count) => {
      const db = createStateDB();
      const indexes = [{ name: 'tag', keys: ({ tags = [] }: Pod) => tags }];
      const pods = db.table<Pod>({ name: 'pods', key: (pod) => pod.name, indexes });
      const tags = Array.from({ length: count * 2 }, (_, at) => `t${at}`);
      const write = (from: number): void => {
        db.write([pods], (txn) =>
          txn.upsert(pods, { name: 'a', node: `n${from}`, tags: tags.slice(from, from + count) }),
        );
      };
      for (const from of [0, count >> 1, count, 1]) {
        write(from);
        using snapshot = db.read();
        const found = tags.filter((tag) => [...snapshot.list(pods, 'tag', tag)].length === 1);
        expect(found).toEqual(tags.slice(from, from + count));
      }
    },
  );

  it('aborts whole when it throws: rows, revisions, watches, streams, initialisers', () => {
    const { db, pods } = setUp();
    const done = db.initialiser(pods, 'list');
    db.write([pods], (txn) => txn.upsert(pods, { name: 'a', node: 'n1' }));
    using before = db.read();
    const { watch } = before.watch(query.get(pods, 'a'));
    const held = db.changes(pods);
    let opened = held;
    expect(() =>
      db.write([pods], (txn) => {
        txn.upsert(pods, { name: 'a', node: 'n2' });
        done(txn);
        expect(txn.initialised(pods)).toBe(true);
        opened = db.changes(pods);
        expect(held.next()).toEqual([{ row: { name: 'a', node: 'n1' }, revision: 1, deleted: false }]);
        db.initialiser(pods, 'second');
        throw new Error('no');
      }),
    ).toThrow('no');
    using after = db.read();
    expect(after.get(pods, 'a')).toBe(before.get(pods, 'a'));
    expect(after.revision(pods)).toBe(1);
    expect(watch.fired).toBe(false);
    expect(db.pendingInitialisers(pods)).toEqual(['list']);
    expect(() => opened.next()).toThrow(StreamDisposedError);
    expect(held.next()).toHaveLength(1);
    expect(db.stats().streams).toBe(1);
    db.write([pods], done);
    expect(db.pendingInitialisers(pods)).toEqual([]);
  });

  it('runs watch callbacks after the commit, each isolated from the others', () => {
    const errors: unknown[] = [];
    const db = createStateDB({ onCallbackError: (error) => errors.push(error) });
    const pods = db.table<Pod>({ name: 'pods', key: (p) => p.name });
    using snapshot = db.read();
    const { watch } = snapshot.watch(query.get(pods, 'a'));
    const seen: (string | undefined)[] = [];
    watch.onFire(() => {
      throw new Error('mine');
    });
    watch.onFire(() => {
      using now = db.read();
      seen.push(now.get(pods, 'a')?.node);
      db.write([pods], (txn) => txn.upsert(pods, { name: 'b', node: 'n' }));
    });
    const takenBack = watch.onFire(() => seen.push('taken back'));
    takenBack();
    db.write([pods], (txn) => txn.upsert(pods, { name: 'a', node: 'n1' }));
    db.write([pods], (txn) => txn.upsert(pods, { name: 'a', node: 'n2' }));
    expect(seen).toEqual(['n1']);
    expect(errors).toEqual([new Error('mine')]);
  });
});

describe('streams and snapshots', () => {
  it('stay right when a merge function or recipe writes its own row', () => {
    const { db, pods } = setUp();
    db.write([pods], (txn) => txn.insert(pods, { name: 'a', node: 'n0' }));
    using stream = db.changes(pods);
    stream.next();
    db.write([pods], (txn) => {
      txn.modify(pods, { name: 'a', node: 'n2' }, (_, row) => {
        txn.upsert(pods, { name: 'a', node: 'n1' });
        return row;
      });
      txn.modify(pods, { name: 'a', node: 'n3' }, (_, row) => {
        txn.delete(pods, 'a');
        return row;
      });
      txn.edit(pods, 'a', (draft) => {
        txn.upsert(pods, { name: 'a', node: 'n4' });
        (draft as { node: string }).node = 'n5';
      });
    });
    expect(stream.next().map(({ row }) => row.node)).toEqual(['n5']);
    db.write([pods], (txn) => txn.delete(pods, 'a'));
    expect(stream.next().map(({ deleted }) => deleted)).toEqual([true]);
    using after = db.read();
    expect([after.count(pods), [...after.all(pods)], [...after.list(pods, 'node', 'n1')]]).toEqual([0, [], []]);
  });

  it('passes the revisions of a row that came and went in one transaction', () => {
    const { db, pods } = setUp();
    using stream = db.changes(pods);
    const watch = stream.watch();
    db.write([pods], (txn) => {
      txn.upsert(pods, { name: 'a', node: 'n' });
      txn.delete(pods, 'a');
    });
    expect(watch.fired).toBe(true);
    expect(stream.next()).toEqual([]);
    expect(stream.revision).toBe(2);
  });

  it('visits as an iterator does: not after disposal, and only what was there', () => {
    const { db, pods } = setUp();
    const put = (...names: string[]): void => {
      db.write([pods], (txn) => {
        for (const name of names) txn.upsert(pods, { name, node: 'n1' });
      });
    };
    put('a', 'b', 'c');
    for (const [query, at] of [
      [{ table: pods, kind: 'all' }, 'b'],
      [{ table: pods, kind: 'all' }, 'c'],
      [{ table: pods, kind: 'prefix', key: '' }, 'b'],
      [{ table: pods, kind: 'range', from: '' }, 'b'],
    ] as const) {
      const snapshot = db.read();
      const seen: string[] = [];
      const visit = (): void =>
        snapshot.visit(query, ({ name }) => {
          seen.push(name);
          if (name === at) snapshot[Symbol.dispose]();
        });
      expect(visit).toThrow(SnapshotDisposedError);
      expect(seen.at(-1)).toBe(at);
    }
    const seen: string[] = [];
    db.write([pods], (txn) => {
      txn.visit({ table: pods, kind: 'all' }, ({ name }) => {
        txn.upsert(pods, { name: `${name}${name}`, node: 'n1' });
        seen.push(name);
      });
    });
    expect(seen).toEqual(['a', 'b', 'c']);
  });

  it('finds snapshots and streams that were lost undisposed, and lets go of what they held', async () => {
    const leaks: string[] = [];
    const db = createStateDB({ findLeaks: true, onLeak: (what) => leaks.push(what) });
    const pods = db.table<Pod>({ name: 'pods', key: (p) => p.name });
    (() => {
      db.read();
      db.changes(pods);
    })();
    setFlagsFromString('--expose-gc');
    const gc = runInNewContext('gc') as () => void;
    for (let i = 0; i < 50 && leaks.length < 2; i++) {
      await new Promise((resolve) => setImmediate(resolve));
      gc();
    }
    expect(leaks.sort()).toEqual(['a change stream of table "pods"', 'a snapshot']);
    expect(db.stats()).toMatchObject({ snapshots: 0, streams: 0, deleteMarkers: 0 });
  });

  it('says when a table is complete', async () => {
    const { db, pods, other } = setUp();
    const first = db.initialiser(pods, 'first');
    const second = db.initialiser(pods, 'second');
    expect(() => db.initialiser(pods, 'first')).toThrow(InitialiserError);
    const watch = db.initialisedWatch(pods);
    db.write([pods], first);
    expect([watch.fired, db.pendingInitialisers(pods)]).toEqual([false, ['second']]);
    expect(() => db.write([other], second)).toThrow(TableNotInTransactionError);
    db.write([pods], second);
    await watch.wait();
    expect(() => db.initialiser(pods, 'late')).toThrow(InitialiserError);
  });
});
