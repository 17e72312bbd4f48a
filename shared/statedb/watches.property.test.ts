/** A watch fires on the commit that changes its answer, never else and never not: on every kind of query. */
import { describe, expect, it } from '@jest/globals';
import fc from 'fast-check';
import { runs } from '../../test/runs.ts';
import type { Query, Snapshot, Watch } from './index.ts';
import { Model, operation, question, type Row, row, setUp } from './testing/model.ts';

const step = fc.oneof(
  {
    weight: 8,
    arbitrary: fc.record({
      kind: fc.constant('write' as const),
      operations: fc.array(operation, { minLength: 1, maxLength: 3 }),
      abort: fc.nat(4).map((n) => n === 0),
    }),
  },
  { weight: 4, arbitrary: question.map((ask) => ({ kind: 'watch' as const, ask })) },
  { weight: 2, arbitrary: fc.constant({ kind: 'hold' as const }) },
  { weight: 2, arbitrary: question.map((ask) => ({ kind: 'late' as const, ask })) },
);

interface Watching {
  readonly query: Query<Row>;
  readonly watch: Watch;
  /** The answer that it came with. */
  readonly answer: string;
  called: number;
  /** It has fired, rightly or not. */
  over: boolean;
}

describe('watches', () => {
  it('fire exactly when the answer changes; what came and went within a commit, and aborts, change nothing', () => {
    const fired = { rightly: 0, spuriously: 0 };
    const containment: Query<Row>['kind'][] = ['lookup', 'covering', 'covered'];
    fc.assert(
      fc.property(
        fc.array(step, { maxLength: 30, size: 'max' }),
        fc.array(question, { minLength: 4, maxLength: 8 }),
        (steps, asked) => {
          const { db, table } = setUp();
          let model = new Model();
          const watching: Watching[] = [];
          let old: { readonly snapshot: Snapshot; readonly model: Model } | undefined;
          const answer = (of: Model, query: Query<Row>): string =>
            JSON.stringify(of.answer(query).map(({ id }) => [id, of.rows.get(id)?.revision]));
          const check = (each: Watching): void => {
            const changed = each.answer !== answer(model, each.query);
            if (changed && !each.watch.fired) {
              throw new Error(`missed: ${JSON.stringify({ ...each.query, table: undefined })}, was ${each.answer}`);
            }
            expect(each.called).toBe(each.watch.fired ? 1 : 0);
            if (!each.watch.fired || each.over) return;
            each.over = true;
            if (changed) fired.rightly++;
            else {
              expect(containment).toContain(each.query.kind);
              fired.spuriously++;
            }
          };
          const add = (query: Query<Row>, snapshot: Snapshot, then: Model): void => {
            const { rows, watch } = snapshot.watch(query);
            expect(rows).toEqual(then.answer(query));
            const each: Watching = { query, watch, answer: answer(then, query), called: 0, over: false };
            expect(watch.fired).toBe(each.answer !== answer(model, query));
            each.over = watch.fired;
            watch.onFire(() => {
              each.called++;
              using now = db.read();
              // Synchronously after the commit: what woke is there to read.
              expect(JSON.stringify(rows.map(({ id }) => [id, then.rows.get(id)?.revision]))).toBe(each.answer);
              expect(now.revision(table)).toBeGreaterThan(then.revision);
            });
            watching.push(each);
          };
          for (const ask of asked) {
            using empty = db.read();
            add(ask(table), empty, model);
          }
          for (const each of steps) {
            if (each.kind === 'write') {
              const draft = new Model(model);
              const stop = new Error('abort');
              try {
                db.write([table], (txn) => {
                  for (const op of each.operations) draft.apply(txn, table, op);
                  if (each.abort) throw stop;
                });
                model = draft;
              } catch (error) {
                if (error !== stop) throw error;
              }
            } else if (each.kind === 'hold') {
              old?.snapshot[Symbol.dispose]();
              old = { snapshot: db.read(), model };
            } else if (each.kind === 'late') {
              if (old !== undefined) add(each.ask(table), old.snapshot, old.model);
            } else {
              using now = db.read();
              add(each.ask(table), now, model);
            }
            watching.forEach(check);
            // Those that have fired are asked anew.
            for (const each of watching.splice(0)) {
              using now = db.read();
              if (each.over) add(each.query, now, model);
              else watching.push(each);
            }
          }
          old?.snapshot[Symbol.dispose]();
        },
      ),
      { numRuns: runs(120) },
    );
    expect(fired.rightly).toBeGreaterThan(runs(500));
    expect(fired.spuriously).toBe(0);
  });

  it('taken back, do not call', () => {
    fc.assert(
      fc.property(row, fc.boolean(), (given, takeBack) => {
        const { db, table } = setUp();
        using before = db.read();
        const { watch } = before.watch({ table, kind: 'all' });
        let called = 0;
        const stop = watch.onFire(() => called++);
        if (takeBack) stop();
        db.write([table], (txn) => txn.upsert(table, given));
        expect([watch.fired, called]).toEqual([true, takeBack ? 0 : 1]);
        watch.onFire(() => called++);
        expect(called).toBe(takeBack ? 1 : 2);
      }),
      { numRuns: 10 },
    );
  });
});

describe('wait', () => {
  it('resolves at the commit, at once when it was before, and rejects with the reason of its signal', async () => {
    const { db, table } = setUp();
    const put = (id: string) =>
      db.write([table], (txn) => txn.upsert(table, { id, rank: 0, labels: [], owner: '', nets: [] }));
    using before = db.read();
    const { watch } = before.watch({ table, kind: 'get', key: 'a' });
    const stop = new AbortController();
    const [aborted, waiting] = [watch.wait(stop.signal), watch.wait(new AbortController().signal)];
    const reason = new Error('enough');
    stop.abort(reason);
    await expect(aborted).rejects.toBe(reason);
    await expect(watch.wait(stop.signal)).rejects.toBe(reason);
    let resolved = false;
    void waiting.then(() => {
      resolved = true;
    });
    put('b');
    await new Promise((resolve) => setImmediate(resolve));
    expect(resolved).toBe(false);
    put('a');
    await waiting;
    await watch.wait();
    await watch.wait(stop.signal);
  });
});

describe('waitFor', () => {
  const ids = (rows: readonly Row[]): string[] => rows.map(({ id }) => id);
  const make = (id: string, labels: readonly string[] = []): Row => ({ id, rank: 0, labels, owner: '', nets: [] });

  it('resolves with the first answer that the predicate holds of, be it there already', async () => {
    const { db, table } = setUp();
    const put = (each: Row) => db.write([table], (txn) => txn.upsert(table, each));
    put(make('a', ['x']));
    expect(ids(await db.waitFor({ table, kind: 'get', key: 'a' }, (rows) => rows.length === 1))).toEqual(['a']);
    const seen: string[][] = [];
    const waiting = db.waitFor({ table, kind: 'list', index: 'label', key: 'x' }, (rows) => {
      seen.push(ids(rows));
      return rows.length === 3;
    });
    put(make('b', ['x']));
    await new Promise((resolve) => setImmediate(resolve));
    put(make('c', ['y']));
    await new Promise((resolve) => setImmediate(resolve));
    put(make('d', ['x']));
    expect(ids(await waiting)).toEqual(['a', 'b', 'd']);
    expect(seen).toEqual([['a'], ['a', 'b'], ['a', 'b', 'd']]);
    expect(db.stats().snapshots).toBe(0);
  });

  it('rejects with the reason of its signal, and with what the predicate throws', async () => {
    const { db, table } = setUp();
    const stop = new AbortController();
    const waiting = db.waitFor({ table, kind: 'all' }, () => false, stop.signal);
    const reason = new Error('enough');
    stop.abort(reason);
    await expect(waiting).rejects.toBe(reason);
    await expect(db.waitFor({ table, kind: 'all' }, () => true, stop.signal)).rejects.toBe(reason);
    const broken = (): never => {
      throw new Error('mine');
    };
    await expect(db.waitFor({ table, kind: 'all' }, broken)).rejects.toThrow('mine');
    expect(db.stats().snapshots).toBe(0);
  });
});
