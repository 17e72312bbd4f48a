/** Rows and tables of the workloads; peers/statedb/main.go says what they are. */
import { createStateDB, type IndexSpec, keys, type StateDB, type Table } from '@weir/statedb';

export interface Plain {
  readonly id: number;
  readonly key: string;
  readonly prefix: string;
  readonly tags: readonly string[];
}

const NO_TAGS: readonly string[] = [];

export function plain(id: number, tags = NO_TAGS): Plain {
  return { id, key: '', prefix: '', tags };
}

export const byTag: IndexSpec<Plain> = { name: 'tags', keys: (row) => row.tags };

export function plainTable(
  name = 'plain',
  db = createStateDB(),
  indexes: readonly IndexSpec<Plain>[] = [],
): { readonly db: StateDB; readonly table: Table<Plain> } {
  return { db, table: db.table<Plain>({ name, key: (row) => keys.uint(row.id), indexes }) };
}

/** Stores ids 0 to `rows` - 1 in one transaction, each as a new object. */
export function fill(db: StateDB, table: Table<Plain>, rows: number, tags = NO_TAGS): void {
  db.write([table], (txn) => {
    for (let id = 0; id < rows; id++) txn.upsert(table, plain(id, tags));
  });
}

export interface Prefixed {
  readonly id: number;
  readonly address: Uint8Array;
  readonly port: number;
}

export function prefixedTable(): { readonly db: StateDB; readonly table: Table<Prefixed> } {
  const db = createStateDB();
  const table = db.table<Prefixed>({
    name: 'lpm',
    key: (row) => keys.uint(row.id),
    indexes: [
      { name: 'prefix', kind: 'lpm', unique: true, keys: (row) => [keys.prefix(row.address, 32)] },
      { name: 'port', kind: 'lpm', unique: true, keys: (row) => [keys.prefix([row.port >> 8, row.port & 0xff], 16)] },
    ],
  });
  return { db, table };
}

/** Addresses 0.0.0.0, 0.0.0.1 and so on. */
export function addresses(count: number): readonly Uint8Array[] {
  return Array.from({ length: count }, (_, id) => Uint8Array.of(id >>> 24, id >>> 16, id >>> 8, id));
}

export function expectRows(what: string, got: number, want: number): void {
  if (got !== want) throw new Error(`${what}: ${got} rows, not ${want}: the workload is broken`);
}

/** Numbers 0 to `count` - 1 in an order that is the same in every run. */
export function shuffled(count: number): number[] {
  const order = Array.from({ length: count }, (_, index) => index);
  const random = randomNumbers();
  for (let last = count - 1; last > 0; last--) {
    const other = random(last + 1);
    [order[last], order[other]] = [order[other] ?? 0, order[last] ?? 0];
  }
  return order;
}

/** Whole numbers below a bound, the same in every run (xorshift of 32 bits). */
export function randomNumbers(): (below: number) => number {
  let state = 0x2545f491;
  return (below) => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 0) % below;
  };
}
