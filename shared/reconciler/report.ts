/** Health and failures of reconcilers as StateDB tables: for queries, watches, and printing. */
import { keys, type StateDB } from '@weir/statedb';
import { type Book, failureOf } from './book.ts';
import type { HealthRow, ReportTables } from './types.ts';

/** Milliseconds between two reports of a loop, at least. */
const INTERVAL_MS = 100;

/** Registers the tables "reconcilers" and "reconciler-failures"; names can be given. Throws what `db.table()` throws. */
export function reportTables(
  db: StateDB,
  names: { readonly health?: string; readonly failures?: string } = {},
): ReportTables {
  return {
    db,
    health: db.table({
      name: names.health ?? 'reconcilers',
      key: (row) => row.reconciler,
      equals: same,
    }),
    failures: db.table({
      name: names.failures ?? 'reconciler-failures',
      key: (row) => failureKey(row.reconciler, row.key),
      indexes: [{ name: 'reconciler', keys: (row) => [row.reconciler] }],
    }),
  };
}

/** The primary key of a `FailureRow`. */
export function failureKey(reconciler: string, key: string): string {
  return keys.join(reconciler, key);
}

/** Writes one reconciler's part of the tables. */
export class Report<T> {
  readonly #tables: ReportTables;
  readonly #book: Book<T>;
  readonly #health: () => HealthRow;
  #written: HealthRow | undefined;
  #writtenAt = Number.NEGATIVE_INFINITY;

  constructor(tables: ReportTables, book: Book<T>, health: () => HealthRow) {
    this.#tables = tables;
    this.#book = book;
    this.#health = health;
  }

  /** Milliseconds on the reconciler's clock: when the next report is due; infinity when there is nothing new to say. */
  get dueAt(): number {
    const news = this.#written === undefined || this.#book.touched?.size !== 0 || !same(this.#written, this.#health());
    return news ? this.#writtenAt + INTERVAL_MS : Number.POSITIVE_INFINITY;
  }

  write(now: number): void {
    const { db, health, failures } = this.#tables;
    const { items, touched } = this.#book;
    const row = this.#health();
    this.#written = row;
    this.#writtenAt = now;
    db.write([health, failures], (txn) => {
      txn.upsert(health, row);
      for (const key of touched ?? []) {
        const item = items.get(key);
        if (item?.error === undefined) {
          txn.delete(failures, failureKey(row.reconciler, key));
          continue;
        }
        const { revision, deleted, error, attempt, nextRetryAt } = failureOf(item, item.error);
        const { message } = error;
        txn.upsert(failures, { reconciler: row.reconciler, key, revision, deleted, message, attempt, nextRetryAt });
      }
    });
    touched?.clear();
  }
}

function same(a: HealthRow, b: HealthRow): boolean {
  return a.state === b.state && a.attempted === b.attempted && a.lag === b.lag && a.failing === b.failing;
}
