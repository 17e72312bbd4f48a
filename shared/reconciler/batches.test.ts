import { describe, expect, it } from '@jest/globals';
import type { BatchItem, Operations } from './index.ts';
import { BatchStoppedError, LateFailureError, OperationTimeoutError } from './index.ts';
import { gate, type Row, settle, setUp } from './test-kit.ts';

const rows = (n: number): Row[] => Array.from({ length: n }, (_, i) => ({ id: `r${i}`, value: i }));
const ids = (batch: readonly BatchItem<Row>[]): string => batch.map(({ row }) => row.id).join();
const never = (): never => {
  throw new Error('not by one');
};

describe('batches', () => {
  it('go by their size, deletes before updates, and fail row by row', async () => {
    const { put, remove, make, stop } = setUp();
    const calls: string[] = [];
    let late: BatchItem<Row> | undefined;
    const reconciler = make(
      {
        update: never,
        delete: never,
        updateBatch: async (batch) => {
          calls.push(`update ${ids(batch)}`);
          for (const item of batch) if (item.row.value === 1) item.fail(new Error(`no ${item.row.id}`));
          late = batch[0];
        },
        deleteBatch: (batch) => void calls.push(`delete ${ids(batch)}`),
      },
      { batchSize: 2 },
    );
    put(...rows(3));
    const progress = await reconciler.reconcile();
    expect(calls).toEqual(['update r0,r1', 'update r2']);
    expect(progress.failing).toMatchObject([{ key: 'r1', error: { message: 'no r1' } }]);
    expect(reconciler.status('r0')?.kind).toBe('done');
    expect(() => late?.fail(new Error('x'))).toThrow(LateFailureError);
    calls.length = 0;
    put({ id: 'new', value: 5 });
    remove('r0');
    await reconciler.reconcile();
    expect(calls).toEqual(['delete r0', 'update new']);
    expect(reconciler.status('r0')).toBeUndefined();
    expect(reconciler.metrics()).toMatchObject({ update: { done: 3, failed: 1 }, delete: { done: 1 } });
    await stop();
  });

  it('that stopped in the middle go on after the row that failed', async () => {
    const { put, make, clock, stop } = setUp();
    const held = new Set<string>();
    const calls: string[] = [];
    let broken = new Set(['r1', 'r4']);
    const reconciler = make({
      update: never,
      delete: never,
      updateBatch: (batch) => {
        calls.push(ids(batch));
        for (const [i, { row }] of batch.entries()) {
          if (broken.has(row.id)) throw new BatchStoppedError(i, new Error(`no ${row.id}`));
          held.add(row.id);
        }
      },
    });
    put(...rows(5));
    const { failing } = await reconciler.reconcile();
    expect(calls).toEqual(['r0,r1,r2,r3,r4', 'r2,r3,r4']);
    expect(failing.map(({ key, error }) => [key, error.message])).toEqual([
      ['r1', 'no r1'],
      ['r4', 'no r4'],
    ]);
    for (const { id } of rows(5)) expect(reconciler.status(id)?.kind).toBe(held.has(id) ? 'done' : 'error');
    broken = new Set();
    clock.advance(10);
    await reconciler.reconcile();
    expect(calls[2]).toBe('r1,r4');
    expect(reconciler.failing()).toEqual([]);
    await stop();
  });

  it.each([-1, 5, 0.5, Number.NaN])('are not believed to have stopped after %p of 5 rows', async (applied) => {
    const { put, make, stop } = setUp();
    const reconciler = make({
      update: never,
      delete: never,
      updateBatch: () => {
        throw new BatchStoppedError(applied, new Error('x'));
      },
    });
    put(...rows(5));
    expect((await reconciler.reconcile()).failing).toHaveLength(5);
    await stop();
  });

  it('that fail as a whole are made smaller until the row to blame is alone', async () => {
    const { put, make, clock, stop } = setUp();
    const sizes: number[] = [];
    const reconciler = make(
      {
        update: never,
        delete: never,
        updateBatch: async (batch) => {
          sizes.push(batch.length);
          if (batch.some(({ row }) => row.id === 'r37')) throw new Error('something is wrong');
        },
      },
      { batchSize: 64 },
    );
    put(...rows(64));
    await reconciler.reconcile();
    expect(reconciler.failing()).toHaveLength(64);
    const failing: number[] = [];
    for (let i = 0; i < 4; i++) {
      clock.advance(40);
      await reconciler.reconcile();
      failing.push(reconciler.failing().length);
    }
    expect(failing).toEqual([16, 4, 1, 1]);
    expect(reconciler.failing()).toMatchObject([{ key: 'r37' }]);
    expect(Math.max(...sizes.slice(1))).toBe(16);
    await stop();
  });

  it('do not take other rows along with one that has been to blame, when that changes again', async () => {
    const { put, make, clock, stop } = setUp();
    const reconciler = make(
      {
        update: never,
        delete: never,
        updateBatch: (batch) => {
          if (batch.some(({ row }) => row.id === 'bad')) throw new Error('something is wrong');
        },
      },
      { batchSize: 64 },
    );
    put({ id: 'bad', value: 0 }, ...rows(3));
    for (let i = 0; i < 5; i++) {
      await reconciler.reconcile();
      clock.advance(40);
    }
    const revision = put(...rows(2), { id: 'bad', value: 1 }, { id: 'after', value: 1 });
    expect((await reconciler.reconcile()).failing).toMatchObject([{ key: 'bad', revision: revision - 1, attempt: 1 }]);
    await stop();
  });

  it('are used for retries and refreshes, and one form does not need the other', async () => {
    const { put, remove, make, clock, stop } = setUp();
    const calls: string[] = [];
    let broken = true;
    const reconciler = make({
      update: never,
      delete: (row) => void calls.push(`delete ${row.id}`),
      updateBatch: (batch) => {
        calls.push(`update ${ids(batch)}`);
        if (broken) for (const item of batch) item.fail('down');
      },
    });
    put(...rows(2));
    await reconciler.reconcile();
    broken = false;
    clock.advance(10);
    remove('r1');
    await reconciler.reconcile();
    await reconciler.refresh();
    expect(calls).toEqual(['update r0,r1', 'delete r1', 'update r0', 'update r0']);
    await stop();
  });

  it('never run beside other operations, nor before they have really ended', async () => {
    const { put, remove, make, clock, stop } = setUp();
    const hold = gate();
    const log: string[] = [];
    const operations: Operations<Row> = {
      update: never,
      delete: (row) => void log.push(`delete ${row.id}`),
      updateBatch: (batch) => {
        log.push(`update ${ids(batch)}`);
        return log.length === 1 ? hold.promise : undefined;
      },
    };
    const reconciler = make(operations, { operationTimeoutMs: 100, concurrency: 5 });
    reconciler.start();
    const waiting = reconciler.waitUntil(put(...rows(3)));
    await settle();
    clock.advance(100);
    expect((await waiting).failing).toMatchObject(
      rows(3).map(({ id }) => ({ key: id, error: expect.any(OperationTimeoutError) })),
    );
    remove('r2');
    clock.advance(1000);
    await settle();
    expect(log).toEqual(['update r0,r1,r2']);
    hold.open();
    await settle();
    expect(log).toEqual(['update r0,r1,r2', 'delete r2']);
    expect(['r0', 'r1', 'r2'].map((id) => reconciler.status(id)?.kind)).toEqual(['done', 'done', undefined]);
    expect(reconciler.metrics()).toMatchObject({ update: { done: 3, failed: 3 }, failing: 0 });
    await stop();
  });

  it('take no more rows than the rate allows', async () => {
    const { put, make, clock, stop } = setUp();
    const sizes: number[] = [];
    const reconciler = make(
      { update: never, delete: never, updateBatch: (batch) => void sizes.push(batch.length) },
      { operationsPerSecond: 100, burst: 4 },
    );
    reconciler.start();
    put(...rows(10));
    await settle();
    clock.advance(30);
    await settle();
    clock.advance(1000);
    await settle();
    expect(sizes).toEqual([4, 3, 3]);
    await stop();
  });
});
