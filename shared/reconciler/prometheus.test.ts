import { describe, expect, it } from '@jest/globals';
import { createStateDB } from '@weir/statedb';
import { Registry } from 'prom-client';
import { createReconciler } from './index.ts';
import { registerMetrics } from './prometheus.ts';

describe('registerMetrics()', () => {
  it('shows what each reconciler has done, and what fails', async () => {
    const db = createStateDB();
    const table = db.table<{ id: string }>({ name: 'rows', key: ({ id }) => id });
    const make = (name: string) =>
      createReconciler<{ id: string }>({
        name,
        db,
        table,
        // What fails is tried once within this test.
        minBackoffMs: 600_000,
        maxBackoffMs: 600_000,
        operations: {
          update: ({ id }) => {
            if (name === 'picky' && id === 'b') throw new Error('no');
          },
          delete: () => {},
        },
      });
    const all = [make('easy'), make('picky')];
    const registry = new Registry();
    registerMetrics(() => all, registry, 'test');
    const value = async (name: string): Promise<readonly (readonly [object, number])[]> =>
      ((await registry.getSingleMetric(name)?.get())?.values ?? []).map((each) => [each.labels, each.value]);

    db.write([table], (txn) => {
      txn.insert(table, { id: 'a' });
      txn.insert(table, { id: 'b' });
    });
    expect(await value('test_lag')).toEqual([
      [{ reconciler: 'easy' }, 2],
      [{ reconciler: 'picky' }, 2],
    ]);
    for (const each of all) await each.reconcile();
    expect(await value('test_lag')).toEqual([
      [{ reconciler: 'easy' }, 0],
      [{ reconciler: 'picky' }, 0],
    ]);
    expect(await value('test_failing')).toEqual([
      [{ reconciler: 'easy' }, 0],
      [{ reconciler: 'picky' }, 1],
    ]);
    const operations = await value('test_operations_total');
    expect(operations).toContainEqual([{ reconciler: 'easy', operation: 'update', result: 'done' }, 2]);
    expect(operations).toContainEqual([{ reconciler: 'picky', operation: 'update', result: 'failed' }, 1]);
    for (const each of all) await each.stop();
  });
});
