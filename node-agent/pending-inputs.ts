import type { StateDB, Table } from '@weir/statedb';

/** How long nothing of the inputs that are missing may come before that is a failure of the policies, in milliseconds. */
const LASTS_AFTER_MS = 30_000;

/** Inputs that are not complete, and since when none of them has come. Key: `what`. */
interface Pending {
  readonly what: 'inputs';
  readonly names: readonly string[];
  /** Milliseconds. */
  readonly since: number;
}

/** Names of the inputs that are missing. */
type Missing = () => readonly string[];

/** Inputs without which nothing can be put in force, and whether they are on their way: table `pendingInputs`. */
export class PendingInputs {
  readonly #db: StateDB;
  readonly #missing: Missing;
  readonly #now: () => number;
  readonly #table: Table<Pending>;

  /** `now`: milliseconds, any clock that only grows. */
  constructor(db: StateDB, missing: Missing, now: () => number) {
    this.#db = db;
    this.#missing = missing;
    this.#now = now;
    this.#table = db.table<Pending>({ name: 'pendingInputs', key: (row) => row.what });
  }

  /** Which they are now. To be called whenever some may have come. */
  look(): readonly string[] {
    const names = this.#missing();
    this.#db.write([this.#table], (txn) => {
      const before = txn.get(this.#table, 'inputs');
      if (names.length === 0) txn.delete(this.#table, 'inputs');
      else if (before === undefined || before.names.some((name) => !names.includes(name)))
        txn.upsert(this.#table, { what: 'inputs', names, since: this.#now() });
      else if (before.names.length !== names.length) txn.upsert(this.#table, { ...before, names });
    });
    return names;
  }

  /** Whether none that is missing has come for so long that it is a failure. */
  lasting(): boolean {
    this.look();
    using snapshot = this.#db.read();
    const row = snapshot.get(this.#table, 'inputs');
    return row !== undefined && this.#now() - row.since >= LASTS_AFTER_MS;
  }
}
