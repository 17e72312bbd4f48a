/**
 * Random traces against a faulty target: it refuses, is late, hangs until its time is over, acknowledges after that,
 * stops batches in the middle, breaks them as a whole, and others tamper with it. Whatever happens, what a reconciler
 * says is so, and in the end the target holds the table.
 */
import { describe, expect, it } from '@jest/globals';
import fc from 'fast-check';
import { runs } from '../../test/runs.ts';
import { type BatchItem, BatchStoppedError, type Operations, type Progress, type Reconciler } from './index.ts';
import { type ManualClock, type Row, settle, setUp } from './test-kit.ts';

const IDS = ['a', 'b', 'c', 'd', 'e'];
/** Milliseconds on the manual clock. */
const TIMEOUT = 50;
const LATE = 20;

type Fault = 'none' | 'throw' | 'late' | 'late refusal' | 'hang' | 'partial' | 'ambiguous';
const FAULTS: readonly Fault[] = ['none', 'throw', 'late', 'late refusal', 'hang', 'partial', 'ambiguous'];

class FaultyTarget {
  readonly held = new Map<string, number>();
  /** The newest revision of each row that was acknowledged, by an update or a delete. */
  readonly acknowledged = new Map<string, number>();
  /** The newest revision of each row that was tried. */
  readonly begun = new Map<string, number>();
  /** What an operation broke that nobody may break. */
  readonly broken: string[] = [];
  faults: readonly Fault[] = ['none'];
  #calls = 0;
  readonly #running = new Set<string>();
  readonly #clock: ManualClock;

  constructor(clock: ManualClock) {
    this.#clock = clock;
  }

  operations(batched: boolean): Operations<Row> {
    const single = (deleted: boolean) => (row: Row, revision: number) => this.#run([{ row, revision }], deleted, false);
    const batch = (deleted: boolean) => (items: readonly BatchItem<Row>[]) => this.#run(items, deleted, true);
    return {
      update: single(false),
      delete: single(true),
      prune: (rows) => this.#prune(rows),
      ...(batched ? { updateBatch: batch(false), deleteBatch: batch(true) } : {}),
    };
  }

  #run(
    items: readonly (Pick<BatchItem<Row>, 'row' | 'revision'> & Partial<BatchItem<Row>>)[],
    deleted: boolean,
    batch: boolean,
  ) {
    const fault = this.#fault();
    for (const { row, revision } of items) {
      if (this.#running.has(row.id)) this.broken.push(`two operations on ${row.id}`);
      if ((this.begun.get(row.id) ?? 0) > revision) this.broken.push(`${row.id} went back to ${revision}`);
      this.#running.add(row.id);
      this.begun.set(row.id, revision);
    }
    const end = (): void => {
      for (const { row } of items) this.#running.delete(row.id);
    };
    const take = (count: number, acknowledge: boolean): void => {
      for (const { row, revision } of items.slice(0, count)) {
        if (deleted) this.held.delete(row.id);
        else this.held.set(row.id, row.value);
        if (acknowledge) this.acknowledged.set(row.id, revision);
      }
    };
    const later = (ms: number, action: () => void): Promise<void> =>
      new Promise((resolve, reject) => {
        this.#clock.after(ms, () => {
          end();
          try {
            action();
            resolve();
          } catch (error) {
            reject(error);
          }
        });
      });
    const refuse = (): never => {
      throw new Error('refused');
    };
    if (fault === 'late') return later(LATE, () => take(items.length, true));
    if (fault === 'late refusal') return later(LATE, refuse);
    if (fault === 'hang') return later(3 * TIMEOUT, () => take(items.length, true));
    end();
    const half = items.length >> 1;
    switch (fault) {
      case 'throw':
        return refuse();
      case 'ambiguous':
        // Taken, and not acknowledged.
        take(half + 1, false);
        return refuse();
      case 'partial':
        if (!batch) return refuse();
        take(half, true);
        if (half % 2 === 0) throw new BatchStoppedError(half, new Error('full'));
        for (const item of items.slice(half)) item.fail?.(new Error('full'));
        return undefined;
      default:
        take(items.length, true);
        return undefined;
    }
  }

  #prune(rows: Iterable<Row>): void {
    if (this.#running.size > 0) this.broken.push('prune beside other operations');
    const wanted = new Set([...rows].map(({ id }) => id));
    for (const id of this.held.keys()) if (!wanted.has(id)) this.held.delete(id);
    if (this.#fault() === 'throw') throw new Error('cannot prune');
  }

  #fault(): Fault {
    return this.faults[this.#calls++ % this.faults.length] ?? 'none';
  }
}

const id = fc.constantFrom(...IDS);
const step = fc.oneof(
  {
    weight: 4,
    arbitrary: fc.record({ kind: fc.constant('put' as const), ids: fc.array(id, { minLength: 1, maxLength: 4 }) }),
  },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('remove' as const), id }) },
  { weight: 3, arbitrary: fc.record({ kind: fc.constant('time' as const), ms: fc.nat(2 * TIMEOUT) }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('turns' as const), turns: fc.nat(3) }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('tamper' as const), id, away: fc.boolean() }) },
  {
    weight: 1,
    arbitrary: fc.record({ kind: fc.constantFrom('refresh' as const, 'prune' as const, 'restart' as const) }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      kind: fc.constant('faults' as const),
      faults: fc.array(fc.constantFrom(...FAULTS), { minLength: 1, maxLength: 5 }),
    }),
  },
);
const settings = fc.record({
  batched: fc.boolean(),
  batchSize: fc.integer({ min: 1, max: 4 }),
  concurrency: fc.integer({ min: 1, max: 3 }),
  operationsPerSecond: fc.constantFrom(Number.POSITIVE_INFINITY, 100),
});

describe('random traces', () => {
  it('converge, report only what is so, and lose no update', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(step, { maxLength: 30 }),
        fc.array(settings, { minLength: 1, maxLength: 2 }),
        async (steps, all) => {
          const world = setUp();
          const { db, table, clock, put, remove, make } = world;
          const targets = all.map(() => new FaultyTarget(clock));
          const started: Reconciler<Row>[] = [];
          /** Every change so far: the revisions of each row. */
          const history = new Map<string, { revision: number; deleted: boolean }[]>(IDS.map((key) => [key, []]));
          const note = (key: string, revision: number, deleted: boolean): unknown =>
            history.get(key)?.push({ revision, deleted });
          const start = (i: number): Reconciler<Row> => {
            const { batched, ...limits } = all[i] as (typeof all)[number];
            const target = targets[i] as FaultyTarget;
            const reconciler = make(target.operations(batched), {
              name: `r${i}`,
              operationTimeoutMs: TIMEOUT,
              onPruneError: () => {},
              ...limits,
            });
            reconciler.start();
            return reconciler;
          };
          for (const i of all.keys()) started[i] = start(i);
          /** Every change up to `revision`, or a newer one of the same row, is acknowledged or said to fail. */
          const checkAnswer = (target: FaultyTarget, revision: number, { reached, failing }: Progress<Row>): void => {
            if (!reached) return;
            const said = new Set(failing.map(({ key }) => key));
            for (const [key, changes] of history) {
              const last = changes.findLast((change) => change.revision <= revision)?.revision;
              if (last === undefined || said.has(key)) continue;
              // A row that came and went before the stream looked was never there for the target.
              if (!target.begun.has(key) && changes.some((c) => c.deleted && c.revision >= last)) continue;
              expect(target.acknowledged.get(key)).toBeGreaterThanOrEqual(last);
            }
          };
          const check = (): void => {
            using snapshot = db.read();
            for (const [i, reconciler] of started.entries()) {
              const target = targets[i] as FaultyTarget;
              expect(target.broken).toEqual([]);
              const failing = new Set(reconciler.failing().map(({ key }) => key));
              expect(reconciler.metrics().failing).toBe(failing.size);
              for (const key of IDS) {
                const status = reconciler.status(key);
                const version = snapshot.getVersioned(table, key);
                if (status?.kind === 'done') {
                  expect(status.revision).toBe(version?.revision);
                  expect(target.acknowledged.get(key)).toBe(version?.revision);
                  expect(failing.has(key)).toBe(false);
                }
                if (status?.kind === 'error') expect(failing.has(key)).toBe(true);
                if (status === undefined) expect(version).toBeUndefined();
              }
            }
          };
          const waits: Promise<unknown>[] = [];
          let value = 0;
          for (const s of steps) {
            if (s.kind === 'put') {
              const revision = put(...s.ids.map((key) => ({ id: key, value: value++ })));
              for (const [i, key] of s.ids.entries()) note(key, revision - s.ids.length + 1 + i, false);
            }
            if (s.kind === 'remove') {
              using before = db.read();
              if (before.has(table, s.id)) note(s.id, remove(s.id), true);
            }
            if (s.kind === 'put' || s.kind === 'remove') {
              const revision = world.revision();
              for (const [i, reconciler] of started.entries()) {
                const target = targets[i] as FaultyTarget;
                const wait = reconciler.waitUntil(revision, { timeoutMs: 500 });
                waits.push(wait.then((progress) => checkAnswer(target, revision, progress), isStopped));
              }
            }
            if (s.kind === 'time') clock.advance(s.ms);
            if (s.kind === 'turns' || s.kind === 'time') await settle(s.kind === 'time' ? 4 : s.turns);
            for (const [i, target] of targets.entries()) {
              const reconciler = started[i] as Reconciler<Row>;
              if (s.kind === 'faults') target.faults = s.faults;
              if (s.kind === 'tamper' && s.away) target.held.delete(s.id);
              if (s.kind === 'tamper' && !s.away) target.held.set(s.id, -1);
              if (s.kind === 'refresh') waits.push(reconciler.refresh().catch(isStopped));
              if (s.kind === 'prune') waits.push(reconciler.prune().catch(() => {}));
              if (s.kind === 'restart') {
                const stopping = reconciler.stop();
                for (let left = 50; left > 0 && reconciler.metrics().running > 0; left--) {
                  clock.advance(LATE);
                  await settle(4);
                }
                await stopping;
                target.acknowledged.clear();
                target.begun.clear();
                started[i] = start(i);
              }
            }
            check();
          }
          for (const target of targets) target.faults = ['none'];
          const until = async (done: () => boolean): Promise<void> => {
            for (let left = 100; left > 0 && !done(); left--) {
              clock.advance(100);
              await settle(6);
            }
            expect(done()).toBe(true);
          };
          await until(() =>
            started.every((r) => r.metrics().lag === 0 && r.metrics().running + r.metrics().failing === 0),
          );
          let mended = 0;
          for (const reconciler of started)
            void reconciler
              .refresh()
              .then(() => reconciler.prune())
              .then(() => mended++);
          await until(() => mended === started.length);
          check();
          for (const target of targets) expect(target.held).toEqual(world.rows());
          await until(() => clock.timers === 0);
          await Promise.all(waits);
          await world.stop();
          expect(world.held()).toEqual({ snapshots: 0, streams: 0, deleteMarkers: 0 });
        },
      ),
      { numRuns: runs(150) },
    );
  });
});

/** Whoever waits for a reconciler that is stopped is told so. */
function isStopped(error: unknown): void {
  expect(error).toMatchObject({ code: 'ERR_RECONCILER_STOPPED' });
}
