/** Workloads that write, as in peers/statedb/writes.go. */
import { setImmediate as turn } from 'node:timers/promises';
import { liveBytes, type Measured, median, nsPerUnit } from './statedb-measure.ts';
import { iterateOnce } from './statedb-reads.ts';
import { addresses, byTag, expectRows, fill, plain, plainTable, prefixedTable, shuffled } from './statedb-tables.ts';

export async function* writeOne(): AsyncGenerator<Measured> {
  const { db, table } = plainTable();
  yield await nsPerUnit('write-1', 'ns/row', 1, (count) => {
    for (let round = 0; round < count; round++) db.write([table], (txn) => txn.upsert(table, plain(123)));
  });
}

export async function* writeMany(name: string, rows: number): AsyncGenerator<Measured> {
  const { db, table } = plainTable();
  yield await nsPerUnit(name, 'ns/row', rows, (count) => {
    for (let round = 0; round < count; round++) fill(db, table, rows);
  });
}

export async function* writeTagged(): AsyncGenerator<Measured> {
  const { db, table } = plainTable('plain', undefined, [byTag]);
  const tags = ['test'];
  yield await nsPerUnit('write-100-tags', 'ns/row', 100, (count) => {
    for (let round = 0; round < count; round++) fill(db, table, 100, tags);
  });
}

export async function* writePrefixes(): AsyncGenerator<Measured> {
  const { db, table } = prefixedTable();
  const all = addresses(100);
  yield await nsPerUnit('write-100-lpm', 'ns/row', 100, (count) => {
    for (let round = 0; round < count; round++) {
      db.write([table], (txn) => {
        for (const [id, address] of all.entries()) txn.upsert(table, { id, address, port: id });
      });
    }
  });
}

const LOADED = 1_000_000;
const BATCH = 1000;
const WEIGHED_RUNS = 3;

/** Loads all ids, 1,000 a transaction. Returns nanoseconds and live bytes a row. */
async function loadOnce(ids: readonly number[]): Promise<{ readonly ns: number; readonly bytes: number }> {
  const before = await liveBytes();
  const { db, table } = plainTable();
  const began = performance.now();
  for (let first = 0; first < ids.length; first += BATCH) {
    db.write([table], (txn) => {
      for (let at = first; at < first + BATCH; at++) txn.upsert(table, plain(ids[at] ?? 0));
    });
  }
  const took = performance.now() - began;
  expectRows('load', iterateOnce(db, table), ids.length);
  const bytes = (await liveBytes()) - before;
  // Keeps the database alive until it has been weighed.
  using _snapshot = db.read();
  return { ns: (took * 1e6) / ids.length, bytes: bytes / ids.length };
}

async function* load(name: string, ids: readonly number[], weighed: boolean): AsyncGenerator<Measured> {
  const runs = [];
  for (let run = 0; run < WEIGHED_RUNS; run++) {
    runs.push(await loadOnce(ids));
    await turn();
  }
  // The first warms up.
  const counted = runs.slice(1);
  yield { case: name, value: median(counted.map(({ ns }) => ns)), unit: 'ns/row' };
  if (weighed) yield { case: `${name}-live`, value: median(counted.map(({ bytes }) => bytes)), unit: 'B/row' };
}

export function loadAscending(): AsyncGenerator<Measured> {
  const ids = Array.from({ length: LOADED }, (_, id) => id);
  return load('load', ids, true);
}

export function loadShuffled(): AsyncGenerator<Measured> {
  return load('load-shuffled', shuffled(LOADED), false);
}
