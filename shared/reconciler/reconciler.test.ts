import { afterEach, describe, expect, it } from '@jest/globals';
import { createStateDB } from '@weir/statedb';
import fc from 'fast-check';
import type { BatchItem, Operations, Reconciler, ReconcilerOptions } from './index.ts';
import { createReconciler, LateFailureError, NotInitialisedError, ReconcilerStoppedError } from './index.ts';

interface Row {
  readonly id: string;
  readonly value: number;
}

/** A target that fails when told to, and a clock that only the test moves. */
class Fake implements Operations<Row> {
  readonly held = new Map<string, number>();
  readonly log: string[] = [];
  fails: (row: Row) => boolean = () => false;
  prunes: string[][] = [];

  update(row: Row): void {
    this.log.push(`update ${row.id}=${row.value}`);
    if (this.fails(row)) throw new Error(`cannot update ${row.id}`);
    this.held.set(row.id, row.value);
  }

  async delete(row: Row): Promise<void> {
    this.log.push(`delete ${row.id}`);
    await Promise.resolve();
    if (this.fails(row)) throw new Error(`cannot delete ${row.id}`);
    this.held.delete(row.id);
  }

  prune(rows: Iterable<Row>): void {
    const wanted = new Set([...rows].map((row) => row.id));
    this.prunes.push([...wanted]);
    for (const id of this.held.keys()) if (!wanted.has(id)) this.held.delete(id);
  }
}

class ManualClock {
  #now = 0;
  readonly #timers = new Set<{ readonly at: number; readonly action: () => void }>();

  now(): number {
    return this.#now;
  }

  after(ms: number, action: () => void): () => void {
    const timer = { at: this.#now + ms, action };
    this.#timers.add(timer);
    return () => this.#timers.delete(timer);
  }

  advance(ms: number): void {
    this.#now += ms;
    for (const timer of [...this.#timers]) {
      if (timer.at > this.#now) continue;
      this.#timers.delete(timer);
      timer.action();
    }
  }
}

const running: Reconciler<Row>[] = [];
afterEach(async () => {
  for (const reconciler of running.splice(0)) await reconciler.stop();
});

const settle = async () => {
  for (let i = 0; i < 20; i++) await new Promise((resolve) => setImmediate(resolve));
};

function setUp() {
  const db = createStateDB({ freeze: true });
  const table = db.table<Row>({ name: 'rows', key: (row) => row.id });
  const clock = new ManualClock();
  const put = (...rows: Row[]) => {
    db.write([table], (txn) => {
      for (const row of rows) txn.upsert(table, row);
    });
    return revision();
  };
  const remove = (id: string) => {
    db.write([table], (txn) => txn.delete(table, id));
    return revision();
  };
  const revision = () => {
    using snapshot = db.read();
    return snapshot.revision(table);
  };
  const make = (operations: Operations<Row>, options: Partial<ReconcilerOptions<Row>> = {}) => {
    const all = {
      name: 'test',
      db,
      table,
      operations,
      clock,
      random: () => 1,
      minBackoffMs: 10,
      maxBackoffMs: 40,
      ...options,
    };
    const reconciler = createReconciler<Row>(all);
    running.push(reconciler);
    return reconciler;
  };
  return { db, table, clock, put, remove, revision, make };
}

describe('reconcile()', () => {
  it('carries out changes in order and tells what fails', async () => {
    const { put, remove, make } = setUp();
    const target = new Fake();
    target.fails = (row) => row.id === 'b';
    const reconciler = make(target);
    put({ id: 'a', value: 1 }, { id: 'b', value: 2 });
    expect(reconciler.status('a')).toEqual({ kind: 'pending', revision: 1 });
    const progress = await reconciler.reconcile();
    expect(progress.revision).toBe(2);
    expect(progress.failing).toMatchObject([{ row: { id: 'b' }, retries: 0, error: { message: 'cannot update b' } }]);
    expect(reconciler.status('a')).toEqual({ kind: 'done', revision: 1 });
    expect(reconciler.status('b')).toMatchObject({ kind: 'error', revision: 2, retries: 0 });
    remove('a');
    expect(reconciler.status('a')).toEqual({ kind: 'pending', revision: 3 });
    await reconciler.reconcile();
    expect(reconciler.status('a')).toBeUndefined();
    expect(target.held).toEqual(new Map());
  });

  it('retries with a delay that doubles up to its maximum, and is reset by a new revision', async () => {
    const { put, make, clock } = setUp();
    const target = new Fake();
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
  });

  it('lets a delete supersede a failing update, and an update a failing delete', async () => {
    const { put, remove, make, clock } = setUp();
    const target = new Fake();
    target.fails = () => true;
    const reconciler = make(target);
    put({ id: 'a', value: 1 });
    await reconciler.reconcile();
    remove('a');
    await reconciler.reconcile();
    expect(target.log).toEqual(['update a=1', 'delete a']);
    const again = put({ id: 'a', value: 2 });
    await reconciler.reconcile();
    expect((await reconciler.waitUntil(1)).failing).toHaveLength(1);
    target.fails = () => false;
    clock.advance(1000);
    await reconciler.reconcile();
    expect(target.log).toEqual(['update a=1', 'delete a', 'update a=2', 'update a=2']);
    expect(await reconciler.waitUntil(again)).toEqual({ revision: again, failing: [] });
    expect(target.held).toEqual(new Map([['a', 2]]));
  });

  it('handles every change committed before the call, beyond one batch', async () => {
    const { put, make } = setUp();
    const target = new Fake();
    const reconciler = make(target, { batchSize: 3 });
    put(...Array.from({ length: 10 }, (_, i) => ({ id: `r${i}`, value: i })));
    expect((await reconciler.reconcile()).revision).toBe(10);
    expect(target.held.size).toBe(10);
  });

  it('uses batches, with the failure of each row or of all', async () => {
    const { put, remove, make, clock } = setUp();
    const batches: string[][] = [];
    let broken = false;
    let late: BatchItem<Row> | undefined;
    const target = new Fake();
    const reconciler = make({
      update: () => {
        throw new Error('not by one');
      },
      delete: (row) => target.delete(row),
      updateBatch: async (batch) => {
        batches.push(batch.map(({ row }) => row.id));
        if (broken) throw new Error('all');
        for (const item of batch) if (item.row.value < 0) item.fail(new Error('negative'));
        late = batch[0];
      },
    });
    put({ id: 'a', value: 1 }, { id: 'b', value: -1 }, { id: 'c', value: 1 });
    await reconciler.reconcile();
    expect(reconciler.failing()).toMatchObject([{ row: { id: 'b' }, error: { message: 'negative' } }]);
    expect(() => late?.fail(new Error('x'))).toThrow(LateFailureError);
    broken = true;
    put({ id: 'd', value: 1 });
    remove('a');
    await reconciler.reconcile();
    expect(reconciler.failing().map((f) => f.error.message)).toEqual(['negative', 'all']);
    expect(target.log).toEqual(['delete a']);
    broken = false;
    clock.advance(100);
    await reconciler.reconcile();
    expect(batches).toEqual([['a', 'b', 'c'], ['d'], ['b', 'd']]);
    expect(reconciler.status('d')?.kind).toBe('done');
  });
});

describe('the loop', () => {
  it('does not prune before the table is initialised, then once, and at each interval', async () => {
    const { db, table, put, make, clock } = setUp();
    const done = db.initialiser(table, 'list');
    const target = new Fake();
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
  });

  it('retries a failed prune and says so', async () => {
    const { put, make, clock } = setUp();
    const target = new Fake();
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
  });

  it('refreshes every acknowledged row', async () => {
    const { put, make, clock } = setUp();
    const target = new Fake();
    const reconciler = make(target, { refreshIntervalMs: 1000, batchSize: 1 });
    reconciler.start();
    await reconciler.waitUntil(put({ id: 'a', value: 1 }, { id: 'b', value: 2 }));
    target.held.clear();
    clock.advance(1000);
    await settle();
    expect(target.held).toEqual(
      new Map([
        ['a', 1],
        ['b', 2],
      ]),
    );
  });

  it('holds to its rate of rounds', async () => {
    const { put, make, clock } = setUp();
    const target = new Fake();
    make(target, { roundsPerSecond: 10 }).start();
    await settle();
    put({ id: 'a', value: 1 });
    await settle();
    expect(target.log).toEqual([]);
    clock.advance(100);
    await settle();
    expect(target.log).toEqual(['update a=1']);
  });

  it('stops after the running operation, keeps the rest pending, lets go of the table, and can start again', async () => {
    const { db, put, remove, revision, make } = setUp();
    let release = (): void => {};
    const target = new Fake();
    const gate = new Promise<void>((resolve) => {
      release = resolve;
    });
    const reconciler = make({
      update: async (row) => {
        if (row.id === 'b') await gate;
        target.update(row);
      },
      delete: (row) => target.delete(row),
    });
    put({ id: 'a', value: 1 }, { id: 'b', value: 1 }, { id: 'c', value: 1 });
    reconciler.start();
    await settle();
    const waiting = expect(reconciler.waitUntil(3)).rejects.toThrow(ReconcilerStoppedError);
    const stopped = reconciler.stop();
    release();
    await stopped;
    await waiting;
    expect(target.log).toEqual(['update a=1', 'update b=1']);
    expect(reconciler.status('c')).toEqual({ kind: 'pending', revision: 3 });
    expect(db.stats()).toEqual({ snapshots: 0, savedVersions: 0, streams: 0, deleteMarkers: 0 });
    remove('a');
    reconciler.start();
    expect((await reconciler.waitUntil(revision())).failing).toEqual([]);
    expect(target.held).toEqual(
      new Map([
        ['b', 1],
        ['c', 1],
      ]),
    );
    expect(target.log.filter((entry) => entry === 'update b=1')).toHaveLength(1);
  });

  it('ends waiting when asked to', async () => {
    const { make } = setUp();
    const stop = new AbortController();
    const waiting = make(new Fake()).waitUntil(99, stop.signal);
    stop.abort(new Error('enough'));
    await expect(waiting).rejects.toThrow('enough');
  });
});

describe('random traces', () => {
  it('two reconcilers on one table each bring a failing target to the table, and never claim what it lacks', async () => {
    const id = fc.constantFrom('a', 'b', 'c', 'd');
    const step = fc.oneof(
      fc.record({ kind: fc.constant('put' as const), id, value: fc.nat(5) }),
      fc.record({ kind: fc.constant('remove' as const), id }),
      fc.record({ kind: fc.constant('round' as const), which: fc.nat(1), failing: fc.subarray(['a', 'b', 'c', 'd']) }),
      fc.record({ kind: fc.constant('restart' as const), which: fc.nat(1) }),
      fc.record({ kind: fc.constant('time' as const), ms: fc.nat(50) }),
    );
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 30 }), fc.integer({ min: 1, max: 3 }), async (steps, batchSize) => {
        const { db, table, put, remove, make, clock, revision } = setUp();
        const targets = [new Fake(), new Fake()];
        const reconcilers = targets.map((target) => make(target, { batchSize }));
        const check = () => {
          using snapshot = db.read();
          for (const [i, reconciler] of reconcilers.entries()) {
            for (const key of ['a', 'b', 'c', 'd']) {
              const status = reconciler.status(key);
              const version = snapshot.getVersioned(table, key);
              if (status?.kind === 'done') {
                expect(status.revision).toBe(version?.revision);
                expect(targets[i]?.held.get(key)).toBe(version?.row.value);
              }
              if (status === undefined) expect(targets[i]?.held.has(key)).toBe(false);
            }
          }
        };
        for (const s of steps) {
          if (s.kind === 'put') put({ id: s.id, value: s.value });
          if (s.kind === 'remove') remove(s.id);
          if (s.kind === 'time') clock.advance(s.ms);
          if (s.kind === 'restart') await reconcilers[s.which]?.stop();
          if (s.kind === 'round') {
            const target = targets[s.which];
            if (target !== undefined) target.fails = (row) => s.failing.includes(row.id);
            const progress = await reconcilers[s.which]?.reconcile();
            expect(progress?.revision).toBe(revision());
          }
          check();
        }
        for (const [i, reconciler] of reconcilers.entries()) {
          (targets[i] as Fake).fails = () => false;
          await reconciler.reconcile();
          for (let round = 0; round < 4; round++) {
            clock.advance(100);
            await reconciler.reconcile();
          }
          expect(reconciler.failing()).toEqual([]);
          using snapshot = db.read();
          expect(targets[i]?.held).toEqual(new Map([...snapshot.all(table)].map((row) => [row.id, row.value])));
          await reconciler.stop();
        }
        expect(db.stats()).toEqual({ snapshots: 0, savedVersions: 0, streams: 0, deleteMarkers: 0 });
      }),
      { numRuns: 100 },
    );
  });
});
