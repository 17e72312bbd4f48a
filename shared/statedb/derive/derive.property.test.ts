/** Random transactions on two tables: what is derived from their join equals what is computed anew, after every step. */
import { describe, expect, it } from '@jest/globals';
import fc from 'fast-check';
import { createStateDB, keys, type StateDB, type Table } from '../index.ts';
import { checkIncremental, type Result } from '../testing/incremental.ts';
import { type Derivation, type DeriveOptions, derive } from './derive.ts';
import type { DeriveReader } from './reads.ts';

interface Order {
  readonly id: string;
  readonly customer: string;
  readonly items: readonly string[];
}
interface Customer {
  readonly id: string;
  readonly group: string;
  readonly age: number;
  readonly bits: number;
}
interface Line {
  readonly item: string;
  readonly text: string;
}

interface Write {
  readonly orders: readonly (readonly [id: string, order: Order | undefined])[];
  readonly customers: readonly (readonly [id: string, customer: Customer | undefined])[];
  readonly clear: boolean;
  readonly abort: boolean;
}

const id = fc.constantFrom('a', 'b', 'c', 'd');
const customerId = fc.constantFrom('x', 'y', 'z');
const orders = fc.tuple(
  id,
  fc.option(fc.record({ customer: customerId, items: fc.subarray(['i', 'j', 'k']) }), { nil: undefined }),
);
const customers = fc.tuple(
  customerId,
  fc.option(fc.record({ group: fc.constantFrom('g', 'gh', 'h'), age: fc.nat(3), bits: fc.nat(8) }), { nil: undefined }),
);
const write: fc.Arbitrary<Write> = fc.record({
  orders: fc.array(
    orders.map(([key, row]): Write['orders'][number] => [key, row && { id: key, ...row }]),
    { maxLength: 2 },
  ),
  customers: fc.array(
    customers.map(([key, row]): Write['customers'][number] => [key, row && { id: key, ...row }]),
    { maxLength: 2 },
  ),
  clear: fc.nat(19).map((n) => n === 0),
  abort: fc.nat(4).map((n) => n === 0),
});

interface World {
  readonly db: StateDB;
  readonly orders: Table<Order>;
  readonly customers: Table<Customer>;
  readonly lines: Table<Line>;
  commit(write: Write): void;
}

function createWorld(): World {
  const db = createStateDB({ freeze: true });
  const orderTable = db.table<Order>({
    name: 'orders',
    key: (order) => order.id,
    equals: (a, b) => JSON.stringify(a) === JSON.stringify(b),
    indexes: [{ name: 'item', keys: (order) => order.items }],
  });
  const customerTable = db.table<Customer>({
    name: 'customers',
    key: (customer) => customer.id,
    equals: (a, b) => JSON.stringify(a) === JSON.stringify(b),
    indexes: [
      { name: 'group', keys: (customer) => [customer.group] },
      { name: 'age', keys: (customer) => [keys.int(customer.age)] },
      { name: 'net', kind: 'lpm', keys: (customer) => [keys.prefix([160], customer.bits)] },
    ],
  });
  const lines = db.table<Line>({ name: 'lines', key: (line) => line.item });
  const stop = new Error('abort');
  return {
    db,
    orders: orderTable,
    customers: customerTable,
    lines,
    commit({ orders: some, customers: others, clear, abort }) {
      try {
        db.write([orderTable, customerTable], (txn) => {
          if (clear) txn.deleteAll(customerTable);
          for (const [key, row] of some) {
            if (row === undefined) txn.delete(orderTable, key);
            else txn.upsert(orderTable, row);
          }
          for (const [key, row] of others) {
            if (row === undefined) txn.delete(customerTable, key);
            else txn.upsert(customerTable, row);
          }
          if (abort) throw stop;
        });
      } catch (error) {
        if (error !== stop) throw error;
      }
    },
  };
}

/** Every item of the order, with what every kind of query says of its customer. Several orders may have one item. */
function linesOf({ orders: orderTable, customers: customerTable }: World, prefixes: boolean) {
  return (order: Order, read: DeriveReader): Line[] => {
    const customer = read.get(customerTable, order.customer);
    if (customer === undefined) return [];
    const ids = (rows: Iterable<{ readonly id: string }>): string => Array.from(rows, (row) => row.id).join('');
    const parts = [
      order.id,
      customer.group,
      ids(read.list(customerTable, 'group', customer.group)),
      ids(read.prefix(customerTable, 'g', 'group')),
      ids(read.lowerBound(customerTable, keys.int(customer.age), 'age')),
      ids(read.range(customerTable, 'x', 'z')),
      String(read.has(orderTable, 'a')),
    ];
    if (order.items.includes('k')) parts.push(ids(read.all(orderTable)));
    if (prefixes) {
      parts.push(ids(read.lookup(customerTable, 'net', keys.address([163]))));
      parts.push(ids(read.covering(customerTable, 'net', keys.prefix([160], 5))));
      parts.push(ids(read.covered(customerTable, 'net', keys.prefix([160], 3))));
    }
    return order.items.map((item) => ({ item, text: parts.join(' ') }));
  };
}

function start(world: World, options: Partial<DeriveOptions<Order, Line>> = {}): Derivation {
  return derive(world.db, {
    name: 'lines',
    into: world.lines,
    inputs: [world.orders, world.customers],
    fn: linesOf(world, true),
    ...options,
  });
}

const present = ({ db, lines }: World): Result => {
  using snapshot = db.read();
  return new Map(Array.from(snapshot.all(lines), (line) => [line.item, line]));
};

const recomputed = (world: World): Result => {
  using snapshot = world.db.read();
  const result = new Map<string, Line>();
  for (const order of snapshot.all(world.orders)) {
    for (const line of linesOf(world, true)(order, snapshot)) if (!result.has(line.item)) result.set(line.item, line);
  }
  return result;
};

describe('a derived table equals what is computed anew', () => {
  it('when flushed after any number of commits', async () => {
    await checkIncremental(
      {
        step: fc.array(write, { maxLength: 3 }),
        create() {
          const world = createWorld();
          const derivation = start(world);
          return {
            apply(writes) {
              for (const each of writes) world.commit(each);
            },
            incremental() {
              derivation.flush();
              return present(world);
            },
            recompute: () => recomputed(world),
            dispose() {
              derivation[Symbol.dispose]();
              expect(world.db.stats()).toMatchObject({ snapshots: 0, streams: 0, deleteMarkers: 0 });
            },
          };
        },
      },
      { numRuns: 80 },
    );
  });

  it('when it runs by itself in the smallest slices, commits, stops and starts coming in between', async () => {
    const turns = async (count: number): Promise<void> => {
      for (let i = 0; i < count; i++) await new Promise((resolve) => setImmediate(resolve));
    };
    const event = fc.oneof(
      { weight: 6, arbitrary: write.map((each) => ({ write: each, turns: 0 })) },
      { weight: 3, arbitrary: fc.integer({ min: 1, max: 3 }).map((count) => ({ write: undefined, turns: count })) },
      { weight: 1, arbitrary: fc.constantFrom('stop' as const, 'flush' as const) },
    );
    await checkIncremental(
      {
        step: fc.array(event, { maxLength: 6 }),
        create() {
          const world = createWorld();
          const derivation = start(world, { slice: 0 });
          return {
            async apply(events) {
              for (const each of events) {
                if (each === 'stop') derivation.stop();
                else if (each === 'flush') derivation.flush();
                else if (each.write !== undefined) world.commit(each.write);
                else await turns(each.turns);
              }
              derivation.start();
            },
            async incremental() {
              // Each of at most 4 units takes a turn, the table of changes another, and all of it once more.
              await turns(16);
              return present(world);
            },
            recompute: () => recomputed(world),
            dispose: () => derivation[Symbol.dispose](),
          };
        },
      },
      { numRuns: 40, maxSteps: 12 },
    );
  });

  it('and evaluates exactly the units whose row or answers have changed', async () => {
    await checkIncremental(
      {
        // One commit at a time: an answer that changes and changes back between two flushes has changed, too.
        step: write,
        create() {
          const world = createWorld();
          const fn = linesOf(world, false);
          let evaluated: string[] = [];
          let expected: string[] = [];
          const derivation = start(world, {
            fn(order, read) {
              evaluated.push(order.id);
              return fn(order, read);
            },
          });
          /** What each unit is made of: its row, and what it is told. */
          const told = new Map<string, readonly unknown[]>();
          const look = (): void => {
            using snapshot = world.db.read();
            for (const key of told.keys()) if (!snapshot.has(world.orders, key)) told.delete(key);
            for (const order of snapshot.all(world.orders)) {
              const now: unknown[] = [order];
              const spy = new Proxy(snapshot, {
                get:
                  (target, name: keyof DeriveReader) =>
                  (table: Table<Customer>, key: string, ...more: unknown[]) => {
                    // To ask whether a row is there is to read it.
                    const row = (): unknown => target.get(table, key);
                    const rows = (): unknown[] => [
                      ...(target[name] as (...args: unknown[]) => Iterable<unknown>).call(target, table, key, ...more),
                    ];
                    const answer = name === 'get' || name === 'has' ? [row()] : rows();
                    now.push('answer', ...answer);
                    if (name === 'get') return answer[0];
                    return name === 'has' ? answer[0] !== undefined : answer.values();
                  },
              });
              fn(order, spy);
              const before = told.get(order.id);
              if (before?.length !== now.length || now.some((each, i) => each !== before[i])) expected.push(order.id);
              told.set(order.id, now);
            }
          };
          return {
            apply(each) {
              evaluated = [];
              expected = [];
              world.commit(each);
            },
            incremental() {
              derivation.flush();
              return evaluated.sort();
            },
            recompute() {
              look();
              return expected.sort();
            },
            dispose: () => derivation[Symbol.dispose](),
          };
        },
      },
      { numRuns: 80 },
    );
  });
});
