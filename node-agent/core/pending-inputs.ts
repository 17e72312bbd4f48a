import type { StateDB, Table } from '@weir/statedb';

/** How long an input may be missing before that is a failure of the policies, in milliseconds, while none that is missing as long comes. */
const LASTS_AFTER_MS = 30_000;

/** An input that is not complete. Key: `name`. */
interface Pending {
  readonly name: string;
  /** When it was found missing, or one that was missing as long came. Milliseconds. */
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
    this.#table = db.table<Pending>({ name: 'pendingInputs', key: (row) => row.name });
  }

  /** Evaluates which are missing now. Call it whenever some may have come. */
  look(): readonly string[] {
    const names = this.#missing();
    const now = this.#now();
    this.#db.write([this.#table], (txn) => {
      const before = [...txn.all(this.#table)];
      const come = before.filter(({ name }) => !names.includes(name));
      // They come one after the other: who waits no longer than the last that came is on its way.
      const oldest = Math.min(...come.map(({ since }) => since));
      for (const { name } of come) txn.delete(this.#table, name);
      for (const name of names) {
        const known = txn.get(this.#table, name);
        if (known === undefined || known.since >= oldest) txn.upsert(this.#table, { name, since: now });
      }
    });
    return names;
  }

  /** Whether one has been missing for so long that it is a failure. */
  lasting(): boolean {
    this.look();
    using snapshot = this.#db.read();
    return Array.from(snapshot.all(this.#table)).some(({ since }) => this.#now() - since >= LASTS_AFTER_MS);
  }
}
