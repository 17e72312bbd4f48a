/** A reconciler whose target takes everything at once, as in peers/statedb/reconcile.go. */
import { setImmediate as turn } from 'node:timers/promises';
import { createReconciler } from '@weir/reconciler';
import { createStateDB, keys } from '@weir/statedb';
import { collect, liveBytes, type Measured, median, RUNS } from './statedb-measure.ts';
import { expectRows } from './statedb-tables.ts';

interface Work {
  readonly id: number;
}

const BATCH = 1000;

/** Returns rows a second, and live bytes a row at the end when asked. */
async function reconcile(
  rows: number,
  weighed: boolean,
): Promise<{ readonly perSecond: number; readonly bytes: number }> {
  const before = weighed ? await liveBytes() : 0;
  const db = createStateDB();
  const table = db.table<Work>({ name: 'work', key: (row) => keys.uint(row.id) });
  let updates = 0;
  const reconciler = createReconciler<Work>({
    name: 'bench',
    db,
    table,
    batchSize: 1000,
    roundsPerSecond: 1000,
    operations: {
      update: () => {
        updates++;
      },
      delete: () => {},
      prune: () => {},
    },
  });
  reconciler.start();

  const began = performance.now();
  for (let first = 0; first < rows; first += BATCH) {
    db.write([table], (txn) => {
      for (let id = first; id < first + BATCH; id++) txn.upsert(table, { id });
    });
    // The reconciler works on rows while more of them come.
    await turn();
  }
  const { failing } = await reconciler.waitUntil(rows);
  const took = performance.now() - began;

  expectRows('failing', failing.length, 0);
  expectRows('updates', updates, rows);
  for (let id = 0; id < rows; id++) {
    const status = reconciler.status(keys.uint(id));
    if (status?.kind !== 'done') throw new Error(`row ${id} is ${status?.kind}, not done`);
  }
  const bytes = weighed ? ((await liveBytes()) - before) / rows : 0;
  await reconciler.stop();
  return { perSecond: (rows * 1000) / took, bytes };
}

export async function* reconcileSome(): AsyncGenerator<Measured> {
  await reconcile(100_000, false);
  const figures: number[] = [];
  for (let run = 0; run < RUNS; run++) {
    await collect();
    figures.push((await reconcile(100_000, false)).perSecond);
  }
  yield { case: 'reconcile-100k', value: median(figures), unit: 'rows/s' };
}

export async function* reconcileMany(): AsyncGenerator<Measured> {
  await reconcile(100_000, false);
  const { perSecond, bytes } = await reconcile(1_000_000, true);
  yield { case: 'reconcile-1m', value: perSecond, unit: 'rows/s' };
  yield { case: 'reconcile-1m-live', value: bytes, unit: 'B/row' };
}
