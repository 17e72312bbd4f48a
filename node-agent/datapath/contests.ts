import type { StateDB, Table } from '@weir/statedb';
import { tableKey } from '../create-tables.ts';
import { LinkError } from '../errors.ts';

/** Moves to the front without a pause between them. */
const AT_ONCE = 3;
const FIRST_PAUSE_MS = 60_000;
const LONGEST_PAUSE_MS = 3_600_000;
/** Who has been left in peace for as long beyond the pause has no contest any more. */
const PEACE_MS = 600_000;

/** How often an endpoint's programs were put before others'. Key: `endpoint`. */
interface Contest {
  readonly endpoint: number;
  readonly moves: number;
  /** Of the last move; milliseconds. */
  readonly at: number;
}

/**
 * Two programs that both insist on being first would move each other without end. So the first moves come at once, later ones after pauses
 * that double, up to an hour. Table `contests`.
 */
export class Contests {
  readonly #db: StateDB;
  readonly #table: Table<Contest>;
  readonly #now: () => number;

  /** `now`: milliseconds, any clock that only grows. */
  constructor(db: StateDB, now: () => number) {
    this.#db = db;
    this.#now = now;
    this.#table = db.table<Contest>({ name: 'contests', key: ({ endpoint }) => tableKey.endpoint(endpoint) });
  }

  /** Makes a move when one is due. @throws LinkError when it is not */
  move(endpoint: number, overtake: () => void): void {
    const now = this.#now();
    using snapshot = this.#db.read();
    const { moves, at } = snapshot.get(this.#table, tableKey.endpoint(endpoint)) ?? { moves: 0, at: now };
    const pause = pauseAfter(moves);
    if (now - at < pause)
      throw new LinkError(
        `another program is put first again and again: this agent's program was moved before it ${moves} times, and will be again after a pause; remove the other program, or attach it after others`,
      );
    overtake();
    this.#db.write([this.#table], (txn) =>
      txn.upsert(this.#table, { endpoint, moves: now - at > pause + PEACE_MS ? 1 : moves + 1, at: now }),
    );
  }

  forget(endpoint: number): void {
    this.#db.write([this.#table], (txn) => txn.delete(this.#table, tableKey.endpoint(endpoint)));
  }
}

function pauseAfter(moves: number): number {
  return moves < AT_ONCE ? 0 : Math.min(FIRST_PAUSE_MS * 2 ** (moves - AT_ONCE), LONGEST_PAUSE_MS);
}
