/** How long the collector stops a program that keeps 1,000,000 rows: while it loads them, changes them, and reads them all. */
import { constants, type NodeGCPerformanceDetail, type PerformanceEntry, PerformanceObserver } from 'node:perf_hooks';
import { setImmediate as turn } from 'node:timers/promises';
import type { Measured } from './statedb-measure.ts';
import { iterateOnce } from './statedb-reads.ts';
import { expectRows, plain, plainTable, randomNumbers } from './statedb-tables.ts';

const ROWS = 1_000_000;
const BATCH = 1000;
const CHURNED = 300_000;
/** Transactions of 100 rows that a snapshot stays open over. */
const HELD = 20;
const PASSES = 3;

/** Longest stop in milliseconds while `body` ran. Collections that a program asked for do not count. */
async function longestPause(body: () => Promise<void>): Promise<number> {
  let longest = 0;
  const take = (entries: readonly PerformanceEntry[]): void => {
    for (const entry of entries) {
      const { duration, detail } = entry as PerformanceEntry & { readonly detail: NodeGCPerformanceDetail };
      if ((detail.flags & constants.NODE_PERFORMANCE_GC_FLAGS_FORCED) === 0) longest = Math.max(longest, duration);
    }
  };
  const observer = new PerformanceObserver((list) => take(list.getEntries()));
  observer.observe({ entryTypes: ['gc'] });
  await body();
  // Entries are handed out in turns of their own.
  await turn();
  await turn();
  take(observer.takeRecords());
  observer.disconnect();
  return longest;
}

export async function* pauses(): AsyncGenerator<Measured> {
  const { db, table } = plainTable();
  const load = await longestPause(async () => {
    for (let first = 0; first < ROWS; first += BATCH) {
      db.write([table], (txn) => {
        for (let id = first; id < first + BATCH; id++) txn.upsert(table, plain(id));
      });
      await turn();
    }
  });
  yield { case: 'pause-load', value: load, unit: 'ms' };

  const random = randomNumbers();
  const churn = await longestPause(async () => {
    for (let done = 0; done < CHURNED; done += HELD * 100) {
      using _held = db.read();
      for (let at = 0; at < HELD; at++) {
        db.write([table], (txn) => {
          for (let row = 0; row < 100; row++) txn.upsert(table, plain(random(ROWS)));
        });
      }
      await turn();
    }
  });
  yield { case: 'pause-churn', value: churn, unit: 'ms' };

  const read = await longestPause(async () => {
    for (let pass = 0; pass < PASSES; pass++) {
      expectRows('iterate', iterateOnce(db, table), ROWS);
      await turn();
    }
  });
  yield { case: 'pause-iterate', value: read, unit: 'ms' };
}
