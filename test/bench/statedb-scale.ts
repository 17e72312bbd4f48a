/**
 * What a write or a read costs beside much else, and without it: idle streams, tables, watches, open snapshots. Each of the two in a
 * process of its own: what the compiler learns from the one does not change the other.
 */
import { keys, type StateDB, type Table } from '@weir/statedb';
import { type Measured, nsPerUnit, type Rounds } from './statedb-measure.ts';
import { fill, type Plain, plain, plainTable } from './statedb-tables.ts';

const ROWS = 1000;

interface Made {
  readonly db: StateDB;
  readonly table: Table<Plain>;
}

function filled(rows = ROWS): Made {
  const made = plainTable();
  fill(made.db, made.table, rows);
  return made;
}

/** A round stores one row: from `first` on, every `step`th of `rows`, in turn. */
function writing({ db, table }: Made, rows = ROWS, first = 0, step = 1): Rounds {
  let id = first;
  return (count) => {
    for (let round = 0; round < count; round++) {
      db.write([table], (txn) => txn.upsert(table, plain(id)));
      id = id + step < rows ? id + step : first;
    }
  };
}

/** A round opens a snapshot, gets one row of 1,000, and disposes of it. */
function reading({ db, table }: Made): Rounds {
  const queries = Array.from({ length: ROWS }, (_, id) => keys.uint(id));
  return (count) => {
    for (let round = 0; round < count; round++) {
      using snapshot = db.read();
      if (snapshot.get(table, queries[round % ROWS] ?? '') === undefined) throw new Error('a row is missing');
    }
  };
}

/** Streams on the table that have seen all its rows and then rest. */
export async function* idleStreams(count: number): AsyncGenerator<Measured> {
  const made = filled();
  using streams = new DisposableStack();
  for (let at = 0; at < count; at++) streams.use(made.db.changes(made.table)).next();
  yield await nsPerUnit('streams', 'ns', 1, writing(made));
}

/** Tables of 10 rows beside the one that is used. */
export async function* otherTables(count: number): AsyncGenerator<Measured> {
  const made = filled();
  for (let at = 0; at < count; at++) fill(made.db, plainTable(`other-${at}`, made.db).table, 10);
  yield await nsPerUnit('tables-write', 'ns', 1, writing(made));
  yield await nsPerUnit('tables-read', 'ns', 1, reading(made));
}

/** Open snapshots, each of its own instant: a row was stored between any two. */
export async function* openSnapshots(count: number): AsyncGenerator<Measured> {
  const made = filled();
  const write = writing(made);
  using snapshots = new DisposableStack();
  for (let at = 0; at < count; at++) {
    snapshots.use(made.db.read());
    await write(1);
  }
  yield await nsPerUnit('snapshots', 'ns', 1, write);
}

/** Watches on even ids of 20,000. The writes are to odd ids, each between two watched ones, and should fire none. */
export async function* keyWatches(count: number): AsyncGenerator<Measured> {
  const rows = 20_000;
  const made = filled(rows);
  const { db, table } = made;
  let fired = 0;
  {
    using snapshot = db.read();
    for (let at = 0; at < count; at++) {
      snapshot.watch({ table, kind: 'get', key: keys.uint(2 * at) }).watch.onFire(() => {
        fired++;
      });
    }
  }
  const write = writing(made, rows, 1, 2);
  // Every odd id once.
  await write(rows / 2);
  if (count > 0) yield { case: 'watches-spurious', value: (100 * fired) / count, unit: '% of watches' };
  yield await nsPerUnit('watches', 'ns', 1, write);
  const before = fired;
  db.write([table], (txn) => txn.upsert(table, plain(0)));
  const expected = Math.min(count, 1);
  if (fired !== before + expected) throw new Error(`a write to id 0 fired ${fired - before} watches, not ${expected}`);
}
