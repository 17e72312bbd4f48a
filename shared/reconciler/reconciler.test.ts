import { describe, expect, it } from '@jest/globals';
import { createReconciler } from './index.ts';
import { FakeTarget, gate, type Row, settle, setUp } from './test-kit.ts';

describe('a round', () => {
  it('carries out changes in order and tells what fails', async () => {
    const { put, remove, make, stop } = setUp();
    const target = new FakeTarget();
    target.fails = (row) => row.id === 'b';
    const reconciler = make(target);
    put({ id: 'a', value: 1 }, { id: 'b', value: 2 });
    expect(reconciler.status('a')).toEqual({ kind: 'pending', revision: 1 });
    const progress = await reconciler.reconcile();
    expect(progress).toMatchObject({ revision: 2, reached: true });
    expect(progress.failing).toEqual([
      {
        key: 'b',
        row: { id: 'b', value: 2 },
        revision: 2,
        deleted: false,
        error: new Error('cannot update b'),
        attempt: 1,
        nextRetryAt: 10,
      },
    ]);
    expect(reconciler.status('a')).toEqual({ kind: 'done', revision: 1 });
    expect(reconciler.status('b')).toEqual({
      kind: 'error',
      revision: 2,
      error: new Error('cannot update b'),
      attempt: 1,
      nextRetryAt: 10,
    });
    remove('a');
    expect(reconciler.status('a')).toEqual({ kind: 'pending', revision: 3 });
    await reconciler.reconcile();
    expect(reconciler.status('a')).toBeUndefined();
    expect(target.log).toEqual(['update a=1', 'update b=2', 'delete a']);
    expect(target.held).toEqual(new Map());
    await stop();
  });

  it('retries with a delay that doubles up to its maximum, and is reset by a new revision', async () => {
    const { put, make, clock, stop } = setUp();
    const target = new FakeTarget();
    target.fails = () => true;
    const seen: number[] = [];
    const reconciler = make(target, { onError: (_row, _error, retries) => seen.push(retries) });
    put({ id: 'a', value: 1 });
    await reconciler.reconcile();
    for (const delay of [10, 20, 40, 40]) {
      const attempts = target.log.length;
      clock.advance(delay - 1);
      await reconciler.reconcile();
      expect(target.log.length).toBe(attempts);
      clock.advance(1);
      await reconciler.reconcile();
      expect(target.log.length).toBe(attempts + 1);
    }
    put({ id: 'a', value: 2 });
    await reconciler.reconcile();
    expect(seen).toEqual([0, 1, 2, 3, 4, 0]);
    expect(reconciler.status('a')).toMatchObject({ attempt: 1, nextRetryAt: clock.now() + 10 });
    await stop();
  });

  it('tells since when the target has acknowledged nothing of a row, whatever its revision', async () => {
    const { put, make, clock, stop } = setUp();
    const target = new FakeTarget();
    target.fails = ({ value }) => value !== 3;
    target.prune = () => {
      throw new Error('cannot prune');
    };
    const [seen, pruning]: [number[], number[]] = [[], []];
    const reconciler = make(target, {
      onError: (_row, _error, _retries, failingMs) => seen.push(failingMs),
      onPruneError: (_error, _retries, failingMs) => pruning.push(failingMs),
    });
    put({ id: 'a', value: 1 });
    await reconciler.reconcile();
    for (const value of [1, 2, 3, 4]) {
      clock.advance(100);
      put({ id: 'a', value });
      await reconciler.reconcile();
    }
    expect(seen).toEqual([0, 100, 200, 0]);
    reconciler.start();
    await settle();
    clock.advance(100);
    await settle();
    expect(pruning).toEqual([0, 100]);
    await stop();
  });

  it('tries again at once what is told to be worth it, and nothing that is done', async () => {
    const { put, make, stop } = setUp();
    const target = new FakeTarget();
    const reconciler = make(target);
    put({ id: 'b', value: 1 });
    await reconciler.reconcile();
    target.fails = () => true;
    put({ id: 'a', value: 1 });
    await reconciler.reconcile();
    target.fails = () => false;
    await reconciler.reconcile();
    expect(target.held).toEqual(new Map([['b', 1]]));
    reconciler.retry();
    await reconciler.reconcile();
    expect(target.held).toEqual(
      new Map([
        ['b', 1],
        ['a', 1],
      ]),
    );
    expect(target.log.filter((line) => line.includes('b'))).toHaveLength(1);
    await stop();
  });

  it('has what is under way then wait as after a first failure, once', async () => {
    const { put, make, clock, stop } = setUp();
    const attempts: PromiseWithResolvers<void>[] = [];
    const begin = (): Promise<void> => {
      const attempt = Promise.withResolvers<void>();
      attempts.push(attempt);
      return attempt.promise;
    };
    const reconciler = make({ update: begin, delete: begin });
    const fail = async (): Promise<number> => {
      attempts.at(-1)?.reject(new Error('no'));
      await settle();
      const status = reconciler.status('a');
      return status?.kind === 'error' ? status.nextRetryAt - clock.now() : Number.NaN;
    };
    reconciler.start();
    put({ id: 'a', value: 1 });
    await settle();
    const waits: number[] = [];
    for (const told of [false, false, true, false]) {
      if (told) reconciler.retry();
      const wait = await fail();
      waits.push(wait);
      clock.advance(wait);
      await settle();
    }
    expect(waits).toEqual([10, 20, 10, 40]);
    attempts.at(-1)?.resolve();
    await stop();
  });

  it('lets a delete supersede a failing update, and an update a failing delete', async () => {
    const { put, remove, make, clock, stop } = setUp();
    const target = new FakeTarget();
    target.fails = () => true;
    const reconciler = make(target);
    put({ id: 'a', value: 1 });
    await reconciler.reconcile();
    remove('a');
    await reconciler.reconcile();
    expect(target.log).toEqual(['update a=1', 'delete a']);
    expect(reconciler.status('a')).toMatchObject({ kind: 'error', revision: 2 });
    const again = put({ id: 'a', value: 2 });
    await reconciler.reconcile();
    expect((await reconciler.waitUntil(1)).failing).toHaveLength(1);
    target.fails = () => false;
    clock.advance(1000);
    await reconciler.reconcile();
    expect(target.log).toEqual(['update a=1', 'delete a', 'update a=2', 'update a=2']);
    expect(await reconciler.waitUntil(again)).toEqual({ revision: again, reached: true, failing: [] });
    expect(target.held).toEqual(new Map([['a', 2]]));
    await stop();
  });

  it('handles every change committed before the call, beyond one batch', async () => {
    const { put, make, stop } = setUp();
    const target = new FakeTarget();
    const reconciler = make(target, { batchSize: 3 });
    put(...Array.from({ length: 10 }, (_, i) => ({ id: `r${i}`, value: i })));
    expect((await reconciler.reconcile()).revision).toBe(10);
    expect(target.held.size).toBe(10);
    await stop();
  });

  it('gives the event loop its turn while synchronous operations run', async () => {
    const { put, make, stop } = setUp();
    let turns = 0;
    let running = true;
    const turn = (): void => {
      turns++;
      if (running) setImmediate(turn);
    };
    const busy = (): void => {
      const end = performance.now() + 2;
      while (performance.now() < end);
    };
    const reconciler = make({ update: busy, delete: busy });
    put(...Array.from({ length: 30 }, (_, i) => ({ id: `r${i}`, value: i })));
    setImmediate(turn);
    await reconciler.reconcile();
    running = false;
    expect(turns).toBeGreaterThanOrEqual(5);
    await stop();
  });

  it('does not even ask for the key of a row that succeeds', async () => {
    const { db, clock } = setUp();
    let asked = 0;
    const counted = db.table<Row>({
      name: 'counted',
      key: (row) => {
        asked++;
        return row.id;
      },
    });
    db.write([counted], (txn) => {
      for (let i = 0; i < 100; i++) txn.insert(counted, { id: `r${i}`, value: i });
    });
    const target = new FakeTarget();
    const reconciler = createReconciler<Row>({ name: 'counting', db, table: counted, operations: target, clock });
    asked = 0;
    await reconciler.reconcile();
    expect([target.held.size, asked]).toEqual([100, 0]);
    await reconciler.stop();
  });
});

describe('waitUntil()', () => {
  it('answers once the revision has been attempted, with what fails up to it', async () => {
    const { put, make, stop, clock } = setUp();
    const target = new FakeTarget();
    target.fails = ({ id }) => id === 'bad';
    const reconciler = make(target);
    reconciler.start();
    const first = put({ id: 'good', value: 1 });
    expect(await reconciler.waitUntil(first)).toEqual({ revision: 1, reached: true, failing: [] });
    const second = put({ id: 'bad', value: 2 });
    expect((await reconciler.waitUntil(second)).failing).toMatchObject([{ key: 'bad', attempt: 1 }]);
    expect((await reconciler.waitUntil(first)).failing).toEqual([]);
    target.fails = () => false;
    clock.advance(10);
    await settle();
    expect((await reconciler.waitUntil(second)).failing).toEqual([]);
    await stop();
  });

  it('answers what is reached when the time is over', async () => {
    const { put, make, stop, clock } = setUp();
    const hold = gate();
    const reconciler = make({ update: () => hold.promise, delete: () => {} });
    reconciler.start();
    const waiting = reconciler.waitUntil(put({ id: 'a', value: 1 }), { timeoutMs: 100 });
    await settle();
    clock.advance(100);
    expect(await waiting).toEqual({ revision: 0, reached: false, failing: [] });
    hold.open();
    await settle();
    expect(await reconciler.waitUntil(1, { timeoutMs: 100 })).toEqual({ revision: 1, reached: true, failing: [] });
    await stop();
    expect(clock.timers).toBe(0);
  });

  it.each(['as an option', 'alone'])('ends when the signal given %s is aborted', async (how) => {
    const { make, stop } = setUp();
    const abort = new AbortController();
    const waiting = make(new FakeTarget()).waitUntil(99, how === 'alone' ? abort.signal : { signal: abort.signal });
    abort.abort(new Error('enough'));
    await expect(waiting).rejects.toThrow('enough');
    await stop();
  });

  it('does not say of a superseded revision that it is reached before the newer one is attempted', async () => {
    const { put, make, stop } = setUp();
    const hold = gate();
    const target = new FakeTarget();
    const reconciler = make(
      { update: (row) => (row.id === 'y' ? hold.promise : target.update(row)), delete: () => {} },
      { batchSize: 1 },
    );
    put({ id: 'k', value: 1 });
    put({ id: 'x', value: 2 }, { id: 'y', value: 3 });
    target.fails = ({ id }) => id === 'k';
    put({ id: 'k', value: 4 });
    reconciler.start();
    await settle();
    expect(target.log).toEqual(['update x=2']);
    let answered = false;
    const waiting = reconciler.waitUntil(1).finally(() => {
      answered = true;
    });
    await settle();
    expect(answered).toBe(false);
    hold.open();
    expect((await waiting).failing).toMatchObject([{ key: 'k', revision: 4 }]);
    await stop();
  });

  it('tells of a refused revision also while a newer one of the row is under way', async () => {
    const { put, make, stop } = setUp();
    const hold = gate();
    const reconciler = make({
      update: (row) => {
        if (row.value === 1) throw new Error('no');
        return hold.promise;
      },
      delete: () => {},
    });
    reconciler.start();
    await reconciler.waitUntil(put({ id: 'a', value: 1 }));
    put({ id: 'a', value: 2 });
    await settle();
    expect(reconciler.status('a')).toEqual({ kind: 'pending', revision: 2 });
    expect((await reconciler.waitUntil(1)).failing).toMatchObject([
      { revision: 2, attempt: 0, error: { message: 'no' } },
    ]);
    hold.open();
    await settle();
    expect((await reconciler.waitUntil(1)).failing).toEqual([]);
    await stop();
  });

  it('is answered although writers keep ahead of the target', async () => {
    const { db, table, put, make, stop } = setUp();
    let next = 0;
    let answered = false;
    const reconciler = make(
      {
        // Each operation makes two more rows to be done.
        update: () => {
          if (answered || next > 1000) return;
          db.write([table], (txn) => {
            for (let i = 0; i < 2; i++) txn.upsert(table, { id: `n${next++}`, value: 0 });
          });
        },
        delete: () => {},
      },
      { batchSize: 2 },
    );
    reconciler.start();
    const progress = await reconciler.waitUntil(
      put({ id: 'a', value: 1 }, { id: 'b', value: 1 }, { id: 'c', value: 1 }),
    );
    answered = true;
    expect(progress.reached).toBe(true);
    expect(next).toBeLessThan(1000);
    await stop();
  });
});

describe('several reconcilers on one table', () => {
  // cilium/statedb keeps the status of all reconcilers in the object: the one that succeeds writes the object, the
  // retry of the one that failed is dropped with the old revision, and waiting says that all is well.
  it('keep their own status and retries', async () => {
    const { put, make, clock, stop } = setUp();
    const sound = new FakeTarget();
    const broken = new FakeTarget();
    broken.fails = () => true;
    const one = make(sound, { name: 'sound' });
    const other = make(broken, { name: 'broken' });
    one.start();
    other.start();
    const revision = put({ id: 'a', value: 1 });
    expect(await one.waitUntil(revision)).toEqual({ revision, reached: true, failing: [] });
    expect((await other.waitUntil(revision)).failing).toMatchObject([{ key: 'a', attempt: 1 }]);
    expect(one.status('a')?.kind).toBe('done');
    expect(other.status('a')?.kind).toBe('error');
    for (const [attempt, delay] of [10, 20].entries()) {
      clock.advance(delay);
      await settle();
      expect((await other.waitUntil(revision)).failing).toMatchObject([{ key: 'a', attempt: attempt + 2 }]);
    }
    broken.fails = () => false;
    clock.advance(40);
    await settle();
    expect(await other.waitUntil(revision)).toEqual({ revision, reached: true, failing: [] });
    expect(broken.held).toEqual(new Map([['a', 1]]));
    expect(sound.log).toEqual(['update a=1']);
    await stop();
  });
});

describe('metrics()', () => {
  it('counts rows and calls, and tells of every call', async () => {
    const { put, make, clock, stop } = setUp();
    const target = new FakeTarget();
    target.fails = ({ id }) => id === 'bad';
    const calls: unknown[] = [];
    const reconciler = make(target, {
      onOperation: (kind, ms, rows, failed) => calls.push([kind, ms >= 0, rows, failed]),
    });
    put({ id: 'a', value: 1 }, { id: 'bad', value: 2 });
    expect(reconciler.metrics()).toMatchObject({ lag: 2, rounds: 0, failing: 0, running: 0 });
    await reconciler.reconcile();
    clock.advance(10);
    await reconciler.reconcile();
    await reconciler.prune();
    expect(reconciler.metrics()).toMatchObject({
      update: { done: 1, failed: 2 },
      delete: { done: 0, failed: 0, totalMs: 0, longestMs: 0 },
      prune: { done: 1, failed: 0 },
      rounds: 2,
      lag: 0,
      running: 0,
      failing: 1,
    });
    expect(calls).toEqual([
      ['update', true, 1, 0],
      ['update', true, 1, 1],
      ['update', true, 1, 1],
      ['prune', true, 1, 0],
    ]);
    await stop();
  });
});
