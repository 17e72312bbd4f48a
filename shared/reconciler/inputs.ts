import type { Snapshot, StateDB, Table } from '@weir/statedb';
import { NotInitialisedError } from './errors.ts';
import type { ReconcilerOptions } from './types.ts';

/** The tables that must all be complete before anything may be taken for superfluous. */
export class Inputs<T> {
  readonly #name: string;
  readonly #db: StateDB;
  readonly #tables: readonly Table<unknown>[];

  constructor({ name, db, table, inputs }: Pick<ReconcilerOptions<T>, 'name' | 'db' | 'table' | 'inputs'>) {
    this.#name = name;
    this.#db = db;
    this.#tables = [...new Set<Table<unknown>>([table as Table<unknown>, ...(inputs ?? [])])];
  }

  initialised(snapshot: Snapshot): boolean {
    return this.#tables.every((table) => snapshot.initialised(table));
  }

  /** Throws `NotInitialisedError`. */
  check(action: 'prune' | 'refresh', snapshot: Snapshot): void {
    if (this.initialised(snapshot)) return;
    const waits = this.#tables.filter((table) => !snapshot.initialised(table));
    throw new NotInitialisedError(
      this.#name,
      action,
      new Map(waits.map((table) => [table.name, this.#db.pendingInitialisers(table)])),
    );
  }

  /** Watches of those that are not initialised. */
  watches() {
    return this.#tables.map((table) => this.#db.initialisedWatch(table)).filter((watch) => !watch.fired);
  }
}
