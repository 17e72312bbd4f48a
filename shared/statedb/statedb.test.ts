import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { describe, expect, it, jest } from '@jest/globals';
import { firstValueFrom, take, toArray } from 'rxjs';
import {
  AsyncWriteError,
  createStateDB,
  DuplicateTableError,
  InitialiserError,
  InvalidKeyError,
  KeyChangedError,
  keys,
  observe,
  ReentrantWriteError,
  RevisionGoneError,
  SnapshotDisposedError,
  StreamDisposedError,
  TableNotInTransactionError,
  TransactionClosedError,
  UnknownIndexError,
  UnknownTableError,
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
  it('aborts whole when it throws: rows, revisions, watches, streams, initialisers', () => {
    const { db, pods } = setUp();
    const done = db.initialiser(pods, 'list');
    db.write([pods], (txn) => txn.upsert(pods, { name: 'a', node: 'n1' }));
    using before = db.read();
    const { watch } = before.getWatch(pods, 'a');
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

  it('refuses re-entrancy, async functions and tables it does not name', async () => {
    const { db, pods, other } = setUp();
    db.write([pods], (txn) => {
      expect(() => db.write([pods], () => {})).toThrow(ReentrantWriteError);
      expect(() => txn.upsert(other, { name: 'a', node: 'n' })).toThrow(TableNotInTransactionError);
      expect(() => db.table({ name: 'late', key: String })).toThrow(ReentrantWriteError);
    });
    const body = jest.fn(async () => {});
    expect(() => db.write([pods], body as () => void)).toThrow(AsyncWriteError);
    const unseen = async () => {};
    expect(() => db.write([pods], unseen)).toThrow(AsyncWriteError);
    expect(() =>
      db.write([pods], (txn) => {
        txn.upsert(pods, { name: 'a', node: 'n' });
        return Promise.reject(new Error('later'));
      }),
    ).toThrow(/await first/);
    using snapshot = db.read();
    expect(snapshot.count(pods)).toBe(0);
    await new Promise((resolve) => setImmediate(resolve));
  });

  it('cannot be used after it ended', () => {
    const { db, pods } = setUp();
    const txn = db.write([pods], (t) => {
      t.upsert(pods, { name: 'a', node: 'n' });
      return t;
    });
    expect(() => txn.get(pods, 'a')).toThrow(TransactionClosedError);
    expect(() => txn.delete(pods, 'a')).toThrow(TransactionClosedError);
  });

  it('keeps the revision for an equal row, and freezes what it stores', () => {
    const { db, pods } = setUp();
    const row = { name: 'a', node: 'n', tags: ['x'] };
    db.write([pods], (txn) => txn.upsert(pods, row));
    db.write([pods], (txn) => txn.upsert(pods, row));
    using snapshot = db.read();
    expect(snapshot.revision(pods)).toBe(1);
    expect(() => row.tags.push('y')).toThrow(TypeError);
  });

  it('edits nested rows, without changing their key', () => {
    const { db, pods } = setUp();
    db.write([pods], (txn) => {
      txn.upsert(pods, { name: 'a', node: 'n', tags: ['x'] });
      const edited = txn.edit(pods, 'a', (draft) => {
        (draft.tags as string[]).push('y');
      });
      expect(edited.tags).toEqual(['x', 'y']);
      expect(() =>
        txn.edit(pods, 'a', (draft) => {
          (draft as { name: string }).name = 'b';
        }),
      ).toThrow(KeyChangedError);
    });
  });

  it('names what is wrong with tables, indexes and keys', () => {
    const { db, pods } = setUp();
    expect(() => db.table({ name: 'pods', key: String })).toThrow(DuplicateTableError);
    expect(() => createStateDB().changes(pods)).toThrow(UnknownTableError);
    using snapshot = db.read();
    expect(() => snapshot.find(pods, 'zone', 'x')).toThrow(UnknownIndexError);
    const odd = db.table<Pod>({ name: 'odd', key: (p) => p.name, indexes: [{ name: 'i', keys: (p) => p.node }] });
    expect(() => db.write([odd], (txn) => txn.upsert(odd, { name: 'a', node: 'n' }))).toThrow(InvalidKeyError);
  });

  it('runs watch callbacks after the commit, each isolated from the others', () => {
    const errors: unknown[] = [];
    const db = createStateDB({ onCallbackError: (error) => errors.push(error) });
    const pods = db.table<Pod>({ name: 'pods', key: (p) => p.name });
    using snapshot = db.read();
    const { watch } = snapshot.getWatch(pods, 'a');
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

describe('watches', () => {
  it('of an old snapshot have fired already, others stay quiet', async () => {
    const { db, pods } = setUp();
    using old = db.read();
    db.write([pods], (txn) => txn.upsert(pods, { name: 'a', node: 'n' }));
    expect(old.getWatch(pods, 'a').watch.fired).toBe(true);
    expect(old.getWatch(pods, 'b').watch.fired).toBe(false);
    expect(old.findWatch(pods, 'node', 'n').watch.fired).toBe(true);
    expect(old.allWatch(pods).watch.fired).toBe(true);
    const { watch } = old.getWatch(pods, 'b');
    const stop = new AbortController();
    const waiting = watch.wait(stop.signal);
    stop.abort(new Error('enough'));
    await expect(waiting).rejects.toThrow('enough');
    const second = watch.wait();
    db.write([pods], (txn) => txn.upsert(pods, { name: 'b', node: 'n' }));
    await second;
  });

  it('on prefixes ignore shorter prefixes than the answer', () => {
    const db = createStateDB();
    const routes = db.table<{ id: string; prefix: string }>({
      name: 'routes',
      key: (r) => r.id,
      indexes: [{ name: 'prefix', kind: 'lpm', keys: (r) => [r.prefix] }],
    });
    const put = (id: string, bits: number) =>
      db.write([routes], (txn) => txn.upsert(routes, { id, prefix: keys.prefix([10, 1, 0, 0], bits) }));
    put('wide', 16);
    using snapshot = db.read();
    const { watch } = snapshot.findWatch(routes, 'prefix', keys.address([10, 1, 2, 3]));
    put('wider', 8);
    expect(watch.fired).toBe(false);
    put('narrow', 23);
    expect(watch.fired).toBe(false);
    put('near', 22);
    expect(watch.fired).toBe(true);
  });
});

describe('streams and snapshots', () => {
  it('keeps delete markers only while a stream needs them', () => {
    const { db, pods } = setUp();
    db.write([pods], (txn) => txn.upsert(pods, { name: 'a', node: 'n' }));
    const stream = db.changes(pods);
    stream.next();
    const at = stream.revision;
    db.write([pods], (txn) => txn.delete(pods, 'a'));
    expect(db.stats().deleteMarkers).toBe(1);
    expect(stream.next()).toEqual([{ row: { name: 'a', node: 'n' }, revision: 2, deleted: true }]);
    expect(db.stats().deleteMarkers).toBe(0);
    expect(() => db.changes(pods, at)).toThrow(RevisionGoneError);
    stream[Symbol.dispose]();
    expect(() => stream.next()).toThrow(StreamDisposedError);
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

  it('does not let history grow under churn, whatever snapshots live', () => {
    const { db, pods } = setUp();
    using _held = db.read();
    for (let i = 0; i < 500; i++) {
      using _short = db.read();
      db.write([pods], (txn) => {
        txn.upsert(pods, { name: `p${i}`, node: 'n' });
        txn.delete(pods, `p${i - 1}`);
        txn.upsert(pods, { name: 'same', node: `${i}` });
      });
    }
    // Of the held snapshot's empty tables: p499 and same, each once, their node keys, and the table's state.
    expect(db.stats().savedVersions).toBeLessThan(20);
    using now = db.read();
    expect([...now.all(pods)].map((p) => p.name)).toEqual(['p499', 'same']);
  });

  it('finds snapshots and streams that were lost undisposed, and lets go of what they held', async () => {
    const leaks: string[] = [];
    const db = createStateDB({ onLeak: (what) => leaks.push(what) });
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
    expect(db.stats()).toEqual({ snapshots: 0, savedVersions: 0, streams: 0, deleteMarkers: 0 });
  });

  it('refuses to read what was disposed', () => {
    const { db, pods } = setUp();
    db.write([pods], (txn) => txn.upsert(pods, { name: 'a', node: 'n' }));
    const snapshot = db.read();
    const rows = snapshot.all(pods);
    snapshot[Symbol.dispose]();
    expect(() => snapshot.get(pods, 'a')).toThrow(SnapshotDisposedError);
    expect(() => rows.next()).toThrow(SnapshotDisposedError);
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

  it('observe() replays the table, follows it, and lets go', async () => {
    const { db, pods } = setUp();
    db.write([pods], (txn) => txn.upsert(pods, { name: 'a', node: 'n' }));
    const batches = firstValueFrom(observe(db, pods).pipe(take(2), toArray()));
    await new Promise((resolve) => setImmediate(resolve));
    await new Promise((resolve) => setImmediate(resolve));
    db.write([pods], (txn) => txn.delete(pods, 'a'));
    expect((await batches).map((b) => b.map((c) => c.deleted))).toEqual([[false], [true]]);
    expect(db.stats().streams).toBe(0);
    const stop = new AbortController();
    const complete = jest.fn();
    observe(db, pods, { signal: stop.signal }).subscribe({ complete });
    stop.abort();
    expect(complete).toHaveBeenCalledTimes(1);
    expect(db.stats().streams).toBe(0);
  });
});
