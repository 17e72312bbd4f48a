import { keys, type StateDB, type Table } from '@weir/statedb';
import { tableKey } from '../create-tables.ts';

/** In the place of an endpoint's id, which none has: all of them. */
export const EVERY = 0;

interface Due {
  /** `bump`: a new revision. `purge`: its flows are to be deleted, as it is gone itself. */
  readonly what: 'bump' | 'purge';
  /** Or EVERY. */
  readonly endpoint: number;
}

/** What is still to be done for endpoints once the rest of a plan is in the kernel, be it rounds later: table `afterwards`. */
export class Afterwards {
  readonly #db: StateDB;
  readonly #table: Table<Due>;

  constructor(db: StateDB) {
    this.#db = db;
    this.#table = db.table<Due>({ name: 'afterwards', key: keyOf });
  }

  get size(): number {
    using snapshot = this.#db.read();
    return snapshot.count(this.#table);
  }

  add(what: Due['what'], endpoints: Iterable<number>): void {
    this.#db.write([this.#table], (txn) => {
      for (const endpoint of endpoints) txn.upsert(this.#table, { what, endpoint });
    });
  }

  due(what: Due['what']): readonly number[] {
    using snapshot = this.#db.read();
    return Array.from(snapshot.prefix(this.#table, keys.join(what)), ({ endpoint }) => endpoint);
  }

  done(what: Due['what'], endpoints: Iterable<number>): void {
    this.#db.write([this.#table], (txn) => {
      for (const endpoint of endpoints) txn.delete(this.#table, keyOf({ what, endpoint }));
    });
  }
}

function keyOf({ what, endpoint }: Due): string {
  return keys.join(what, tableKey.endpoint(endpoint));
}
