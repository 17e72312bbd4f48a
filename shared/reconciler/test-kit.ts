/** For the tests of this folder: a table of rows, a clock that only the test moves, a target that fails when told to. */
import { createStateDB } from '@weir/statedb';
import type { Clock, Operations, Reconciler, ReconcilerOptions } from './index.ts';
import { createReconciler } from './index.ts';

export interface Row {
  readonly id: string;
  readonly value: number;
}

export class ManualClock implements Clock {
  #now = 0;
  readonly #timers = new Set<{ readonly at: number; readonly action: () => void }>();

  get timers(): number {
    return this.#timers.size;
  }

  now(): number {
    return this.#now;
  }

  after(ms: number, action: () => void): () => void {
    const timer = { at: this.#now + ms, action };
    this.#timers.add(timer);
    return () => this.#timers.delete(timer);
  }

  advance(ms: number): void {
    this.#now += ms;
    for (const timer of [...this.#timers]) {
      if (timer.at > this.#now || !this.#timers.delete(timer)) continue;
      timer.action();
    }
  }
}

export class FakeTarget implements Operations<Row> {
  readonly held = new Map<string, number>();
  readonly log: string[] = [];
  readonly prunes: string[][] = [];
  fails: (row: Row) => boolean = () => false;

  update(row: Row): void {
    this.log.push(`update ${row.id}=${row.value}`);
    if (this.fails(row)) throw new Error(`cannot update ${row.id}`);
    this.held.set(row.id, row.value);
  }

  async delete(row: Row): Promise<void> {
    this.log.push(`delete ${row.id}`);
    await Promise.resolve();
    if (this.fails(row)) throw new Error(`cannot delete ${row.id}`);
    this.held.delete(row.id);
  }

  prune(rows: Iterable<Row>): void {
    const wanted = new Set([...rows].map((row) => row.id));
    this.prunes.push([...wanted]);
    for (const id of this.held.keys()) if (!wanted.has(id)) this.held.delete(id);
  }
}

/** Lets everything happen that needs no time on the manual clock. */
export async function settle(turns = 12): Promise<void> {
  for (let i = 0; i < turns; i++) await new Promise((resolve) => setImmediate(resolve));
}

export function setUp() {
  const db = createStateDB({ freeze: true });
  const table = db.table<Row>({ name: 'rows', key: (row) => row.id });
  const clock = new ManualClock();
  const made: Reconciler<Row>[] = [];
  const revision = (): number => {
    using snapshot = db.read();
    return snapshot.revision(table);
  };
  const put = (...rows: Row[]): number => {
    db.write([table], (txn) => {
      for (const row of rows) txn.upsert(table, row);
    });
    return revision();
  };
  const remove = (id: string): number => {
    db.write([table], (txn) => txn.delete(table, id));
    return revision();
  };
  /** Retries come after the whole of their delay: 10, 20, 40, 40 ms. */
  const make = (operations: Operations<Row>, options: Partial<ReconcilerOptions<Row>> = {}): Reconciler<Row> => {
    const reconciler = createReconciler<Row>({
      name: 'test',
      db,
      table,
      operations,
      clock,
      random: () => 0,
      minBackoffMs: 10,
      maxBackoffMs: 40,
      ...options,
    });
    made.push(reconciler);
    return reconciler;
  };
  const stop = (): Promise<unknown> => Promise.all(made.map((reconciler) => reconciler.stop()));
  const rows = (): Map<string, number> => {
    using snapshot = db.read();
    return new Map([...snapshot.all(table)].map(({ id, value }) => [id, value]));
  };
  const held = () => {
    const { snapshots, streams, deleteMarkers } = db.stats();
    return { snapshots, streams, deleteMarkers };
  };
  return { db, table, clock, put, remove, revision, make, stop, rows, held };
}

/** A promise that the test ends when it wants. */
export function gate(): {
  readonly promise: Promise<void>;
  readonly open: () => void;
  readonly break: (e: Error) => void;
} {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  return { promise, open: resolve, break: reject };
}
