/** Workloads that read and follow, as in peers/statedb/reads.go. */
import { setImmediate as turn } from 'node:timers/promises';
import { createStateDB, keys, query, type StateDB, type Table } from '@weir/statedb';
import { quantile } from './report.ts';
import { collect, type Measured, median, nsPerUnit, RUNS } from './statedb-measure.ts';
import {
  addresses,
  byTag,
  expectRows,
  fill,
  type Plain,
  plainTable,
  prefixedTable,
  shuffled,
} from './statedb-tables.ts';

export async function* openRead(): AsyncGenerator<Measured> {
  const { db } = plainTable('plain', undefined, [byTag]);
  // Four a turn, as in the peer's program: a turn of an empty loop takes longer than a read transaction.
  yield await nsPerUnit('read', 'ns', 4, (count) => {
    for (let round = 0; round < count; round++) {
      db.read()[Symbol.dispose]();
      db.read()[Symbol.dispose]();
      db.read()[Symbol.dispose]();
      db.read()[Symbol.dispose]();
    }
  });
}

export async function* lookUp(): AsyncGenerator<Measured> {
  const rows = 1000;
  const { db, table } = plainTable();
  fill(db, table, rows);
  const queries = shuffled(rows).map((id) => keys.uint(id));
  yield await nsPerUnit('lookup', 'ns/row', rows, (count) => {
    for (let round = 0; round < count; round++) {
      using snapshot = db.read();
      for (const key of queries) if (snapshot.get(table, key) === undefined) throw new Error('a row is missing');
    }
  });
}

export async function* iterate(): AsyncGenerator<Measured> {
  const rows = 100_000;
  const { db, table } = plainTable();
  fill(db, table, rows);
  yield await nsPerUnit('iterate', 'ns/row', rows, (count) => {
    for (let round = 0; round < count; round++) expectRows('iterate', iterateOnce(db, table), rows);
  });
}

/** What the peer's `All` does, which calls its loop's body for each row. */
export async function* visit(): AsyncGenerator<Measured> {
  const rows = 100_000;
  const { db, table } = plainTable();
  fill(db, table, rows);
  let next = 0;
  // Made once: V8 throws away what it compiled with a function in it when that is collected, as between the runs.
  const check = (row: Plain): undefined => {
    if (row.id !== next++) throw new Error('rows out of order');
  };
  yield await nsPerUnit('visit', 'ns/row', rows, (count) => {
    for (let round = 0; round < count; round++) {
      using snapshot = db.read();
      next = 0;
      snapshot.visit(query.all(table), check);
      expectRows('visit', next, rows);
    }
  });
}

/** Counts all rows of a table whose ids are 0, 1, and so on. */
export function iterateOnce(db: StateDB, table: Table<Plain>): number {
  using snapshot = db.read();
  let next = 0;
  for (const row of snapshot.all(table)) if (row.id !== next++) throw new Error('rows out of order');
  return next;
}

export async function* followChanges(): AsyncGenerator<Measured> {
  const rows = 1000;
  const { db, table } = plainTable();
  using stream = db.changes(table);
  const take = (deleted: boolean): void => {
    let seen = 0;
    for (const change of stream.next()) {
      if (change.deleted !== deleted) throw new Error(`a change with deleted: ${change.deleted}`);
      seen++;
    }
    expectRows('changes', seen, rows);
  };
  yield await nsPerUnit('changes', 'ns/row', rows, async (count) => {
    for (let round = 0; round < count; round++) {
      fill(db, table, rows);
      take(false);
      const watch = stream.watch();
      db.write([table], (txn) => txn.deleteAll(table));
      await watch.wait();
      take(true);
    }
  });
}

export async function* getPrefixes(): AsyncGenerator<Measured> {
  const rows = 10_000;
  const { db, table } = prefixedTable();
  const all = addresses(rows);
  db.write([table], (txn) => {
    for (const [id, address] of all.entries()) txn.upsert(table, { id, address, port: id });
  });
  const queries = all.map((address) => keys.address(address));
  using snapshot = db.read();
  yield await nsPerUnit('lpm-get', 'ns/row', rows, (count) => {
    for (let round = 0; round < count; round++) {
      for (const key of queries) {
        if (snapshot.lookup(table, 'prefix', key).next().done === true) throw new Error('a prefix is missing');
      }
    }
  });
}

export async function* propagate(): AsyncGenerator<Measured> {
  const rounds = 20_000;
  const db = createStateDB();
  const { table: from } = plainTable('from', db);
  const { table: to } = plainTable('to', db);
  using stream = db.changes(from);
  let pending = stream.watch();

  const samples = async (): Promise<number[]> => {
    const took: number[] = [];
    for (let round = 0; round < rounds; round++) {
      // Timers and finalisers get their turn as they would in a program, outside of what is timed.
      if (round % 100 === 0) await turn();
      const began = performance.now();
      fill(db, from, 10);
      await pending.wait();
      using snapshot = db.read();
      const { watch: arrived } = snapshot.watch({ table: to, kind: 'all' });
      const changed = stream.next();
      pending = stream.watch();
      db.write([to], (txn) => {
        for (const { row } of changed) txn.upsert(to, { ...row });
      });
      await arrived.wait();
      took.push((performance.now() - began) * 1000);
    }
    return took;
  };
  await samples();
  const p50: number[] = [];
  const p99: number[] = [];
  for (let run = 0; run < RUNS; run++) {
    await collect();
    const took = await samples();
    p50.push(median(took));
    p99.push(quantile(took, 0.99));
  }
  yield { case: 'propagation-p50', value: median(p50), unit: 'us' };
  yield { case: 'propagation-p99', value: median(p99), unit: 'us' };
}
