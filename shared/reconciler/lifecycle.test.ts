import { describe, expect, it } from '@jest/globals';
import { NotInitialisedError, ReconcilerStoppedError, StopTimeoutError } from './index.ts';
import { FakeTarget, gate, settle, setUp } from './test-kit.ts';

describe('prune', () => {
  it('does not happen before the table is initialised, then once, and at each interval', async () => {
    const { db, table, put, make, clock, stop } = setUp();
    const done = db.initialiser(table, 'list');
    const target = new FakeTarget();
    target.held.set('left over', 1);
    const reconciler = make(target, { pruneIntervalMs: 1000 });
    await expect(reconciler.prune()).rejects.toThrow(NotInitialisedError);
    reconciler.start();
    await reconciler.waitUntil(put({ id: 'a', value: 1 }));
    clock.advance(5000);
    await settle();
    expect(target.prunes).toEqual([]);
    db.write([table], done);
    await settle();
    expect(target.prunes).toEqual([['a']]);
    expect([...target.held.keys()]).toEqual(['a']);
    clock.advance(999);
    await settle();
    expect(target.prunes).toHaveLength(1);
    clock.advance(1);
    await settle();
    expect(target.prunes).toHaveLength(2);
    await stop();
  });

  it('waits, as refresh does, for every input table', async () => {
    const { db, put, make, clock, stop } = setUp();
    const inputs = ['pods', 'nodes'].map((name) => db.table<{ id: string }>({ name, key: (row) => row.id }));
    const done = inputs.map((input) => db.initialiser(input, `list of ${input.name}`));
    const target = new FakeTarget();
    const reconciler = make(target, { inputs, refreshIntervalMs: 1000 });
    reconciler.start();
    await reconciler.waitUntil(put({ id: 'a', value: 1 }));
    for (const [i, input] of inputs.entries()) {
      const message = `incomplete is table "${input.name}" (list of ${input.name})`;
      clock.advance(1000);
      await settle();
      expect([target.prunes.length, target.log.length]).toEqual([0, 1]);
      if (i === 1) await expect(reconciler.prune()).rejects.toThrow(message);
      if (i === 1) await expect(reconciler.refresh()).rejects.toThrow(message);
      db.write([input], (txn) => done[i]?.(txn));
    }
    await settle();
    expect(target.prunes).toEqual([['a']]);
    expect(target.log).toEqual(['update a=1', 'update a=1']);
    expect((await reconciler.refresh()).failing).toEqual([]);
    expect(target.log).toHaveLength(3);
    await stop();
  });

  it('is retried when it fails, and that is told', async () => {
    const { put, make, clock, stop } = setUp();
    const target = new FakeTarget();
    const prune = target.prune.bind(target);
    let attempts = 0;
    target.prune = (rows) => {
      if (attempts++ < 2) throw new Error('not now');
      prune(rows);
    };
    const seen: string[] = [];
    make(target, { onPruneError: (error, retries) => seen.push(`${error.message} ${retries}`) }).start();
    put({ id: 'a', value: 1 });
    for (const delay of [0, 10, 20, 1000]) {
      clock.advance(delay);
      await settle();
    }
    expect(seen).toEqual(['not now 0', 'not now 1']);
    expect(target.prunes).toEqual([['a']]);
    await stop();
  });

  it('runs beside no other operation, over the rows of one instant', async () => {
    const { put, make, stop, held } = setUp();
    const update = gate();
    const prune = gate();
    const log: string[] = [];
    const reconciler = make(
      {
        update: async (row) => {
          log.push(`begin ${row.id}`);
          if (row.id === 'a') await update.promise;
          log.push(`end ${row.id}`);
        },
        delete: () => {},
        prune: async (rows) => {
          log.push('begin prune');
          await prune.promise;
          log.push(`end prune of ${[...rows].map(({ id }) => id).join()}`);
        },
      },
      { concurrency: 5 },
    );
    put({ id: 'a', value: 1 });
    reconciler.start();
    await settle();
    const pruned = reconciler.prune();
    await settle();
    expect(log).toEqual(['begin a']);
    update.open();
    await settle();
    put({ id: 'b', value: 1 });
    await settle();
    expect(log).toEqual(['begin a', 'end a', 'begin prune']);
    expect(held().snapshots).toBe(1);
    prune.open();
    await pruned;
    await settle();
    expect(log.slice(3, 6)).toEqual(['end prune of a', 'begin b', 'end b']);
    await stop();
    expect(held()).toEqual({ snapshots: 0, streams: 0, deleteMarkers: 0 });
  });
});

describe('refresh', () => {
  it('applies every acknowledged row again at each interval', async () => {
    const { put, make, clock, stop } = setUp();
    const target = new FakeTarget();
    const reconciler = make(target, { refreshIntervalMs: 1000, batchSize: 1 });
    reconciler.start();
    await reconciler.waitUntil(put({ id: 'a', value: 1 }, { id: 'b', value: 2 }));
    for (let i = 0; i < 2; i++) {
      target.held.clear();
      clock.advance(1000);
      await settle();
      expect([...target.held.keys()].sort()).toEqual(['a', 'b']);
    }
    await stop();
  });

  it('happens on demand, tells what fails, and lets changes go on between', async () => {
    const { put, remove, make, clock, stop, held } = setUp();
    const target = new FakeTarget();
    const reconciler = make(target, { batchSize: 1 });
    const revision = put({ id: 'a', value: 1 }, { id: 'b', value: 2 }, { id: 'c', value: 3 });
    await reconciler.reconcile();
    target.log.length = 0;
    target.fails = ({ id }) => id === 'b';
    const refreshed = reconciler.refresh();
    remove('c');
    const round = reconciler.reconcile();
    expect((await refreshed).failing).toMatchObject([{ key: 'b', revision: 2 }]);
    await round;
    expect(target.log).toEqual(['delete c', 'update a=1', 'update b=2']);
    expect((await reconciler.waitUntil(revision)).failing).toMatchObject([{ key: 'b' }]);
    target.fails = () => false;
    clock.advance(10);
    await reconciler.reconcile();
    expect(reconciler.status('b')).toEqual({ kind: 'done', revision: 2 });
    expect(held().streams).toBe(1);
    await stop();
  });
});

describe('rounds', () => {
  it('keep to their rate', async () => {
    const { put, make, clock, stop } = setUp();
    const target = new FakeTarget();
    make(target, { roundsPerSecond: 10 }).start();
    await settle();
    put({ id: 'a', value: 1 });
    await settle();
    expect(target.log).toEqual([]);
    clock.advance(100);
    await settle();
    expect(target.log).toEqual(['update a=1']);
    await stop();
  });

  it('keep to the rate of operations, after a burst', async () => {
    const { put, make, clock, stop } = setUp();
    const target = new FakeTarget();
    make(target, { operationsPerSecond: 10, burst: 3 }).start();
    put(...Array.from({ length: 8 }, (_, i) => ({ id: `r${i}`, value: i })));
    await settle();
    const done = [target.log.length];
    for (const ms of [99, 1, 250, 50, 1000]) {
      clock.advance(ms);
      await settle();
      done.push(target.log.length);
    }
    expect(done).toEqual([3, 3, 4, 6, 7, 8]);
    await stop();
  });
});

describe('stop()', () => {
  it('finishes what runs, begins nothing more, and lets go of the table', async () => {
    const { put, make, stop, held } = setUp();
    const hold = gate();
    const target = new FakeTarget();
    const reconciler = make({
      update: async (row) => {
        if (row.id === 'b') await hold.promise;
        target.update(row);
      },
      delete: (row) => target.delete(row),
    });
    put({ id: 'a', value: 1 }, { id: 'b', value: 1 }, { id: 'c', value: 1 });
    reconciler.start();
    await settle();
    const waiting = expect(reconciler.waitUntil(3)).rejects.toThrow(ReconcilerStoppedError);
    let stopped = false;
    const stopping = reconciler.stop().then(() => {
      stopped = true;
    });
    await settle();
    expect(stopped).toBe(false);
    hold.open();
    await stopping;
    await waiting;
    expect(target.log).toEqual(['update a=1', 'update b=1']);
    expect(reconciler.status('b')).toEqual({ kind: 'done', revision: 2 });
    expect(reconciler.status('c')).toEqual({ kind: 'pending', revision: 3 });
    expect(held()).toEqual({ snapshots: 0, streams: 0, deleteMarkers: 0 });
    await stop();
  });

  it('is final', async () => {
    const { put, make, stop } = setUp();
    const reconciler = make(new FakeTarget());
    const revision = put({ id: 'a', value: 1 });
    await reconciler.reconcile();
    await stop();
    expect(() => reconciler.start()).toThrow(ReconcilerStoppedError);
    for (const refused of [
      reconciler.reconcile(),
      reconciler.prune(),
      reconciler.refresh(),
      reconciler.waitUntil(revision + 1),
    ]) {
      await expect(refused).rejects.toMatchObject({ code: 'ERR_RECONCILER_STOPPED' });
    }
    expect((await reconciler.waitUntil(revision)).reached).toBe(true);
  });

  it('aborts what runs beyond the time of grace', async () => {
    const { put, make, clock } = setUp();
    const reasons: unknown[] = [];
    const reconciler = make(
      {
        update: (_row, _revision, signal) =>
          new Promise((_resolve, reject) => {
            signal.addEventListener('abort', () => {
              reasons.push(signal.reason);
              reject(signal.reason);
            });
          }),
        delete: () => {},
      },
      { stopGraceMs: 100, concurrency: 2 },
    );
    put({ id: 'a', value: 1 }, { id: 'b', value: 1 });
    reconciler.start();
    await settle();
    const stopping = reconciler.stop();
    clock.advance(99);
    await settle();
    expect(reasons).toEqual([]);
    clock.advance(1);
    await stopping;
    expect(reasons).toEqual([expect.any(ReconcilerStoppedError), expect.any(ReconcilerStoppedError)]);
    expect(reconciler.status('a')?.kind).toBe('error');
  });

  it('gives up what ignores its signal', async () => {
    const { put, make, clock, held } = setUp();
    const hold = gate();
    const reconciler = make({ update: () => hold.promise, delete: () => {} }, { stopGraceMs: 100 });
    put({ id: 'a', value: 1 });
    reconciler.start();
    await settle();
    const stopping = reconciler.stop();
    clock.advance(100);
    clock.advance(100);
    await expect(stopping).rejects.toThrow(StopTimeoutError);
    expect(held()).toEqual({ snapshots: 0, streams: 0, deleteMarkers: 0 });
    hold.open();
    await settle();
  });

  it('answers a round that it interrupts', async () => {
    const { put, make } = setUp();
    const hold = gate();
    const reconciler = make({ update: () => hold.promise, delete: () => {} });
    put({ id: 'a', value: 1 }, { id: 'b', value: 1 });
    const round = reconciler.reconcile();
    await settle();
    const stopping = reconciler.stop();
    hold.open();
    expect(await round).toEqual({ revision: 0, reached: false, failing: [] });
    await stopping;
  });
});
