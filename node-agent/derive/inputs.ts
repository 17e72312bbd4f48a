import type { ChangeStream, Reader, Snapshot, StateDB, Table } from '@weir/statedb';

/**
 * The input tables as they were when they had been pulled completely, all at one moment: what is computed is computed from
 * `snapshot`, however long that takes and whatever is written meanwhile. Their change streams say which rows to look at.
 */
export class Inputs {
  readonly #db: StateDB;
  readonly #streams: (readonly [ChangeStream<never>, (change: never) => void])[] = [];
  #snapshot: Snapshot;

  constructor(db: StateDB) {
    this.#db = db;
    this.#snapshot = db.read();
  }

  /** Good until the next `pull`. Before the first one is complete: the tables as they were when this was made. */
  get snapshot(): Reader {
    return this.#snapshot;
  }

  /**
   * Changed rows of the table go to `take` from now on; while it runs, `snapshot` is the one of before these changes. Tables
   * are pulled in the order in which they are named here.
   */
  on<T>(table: Table<T>, take: (row: T, deleted: boolean) => void): void {
    const stream = this.#db.changes(table, { name: 'model' });
    const handler = (change: { readonly row: T; readonly deleted: boolean }): void => take(change.row, change.deleted);
    this.#streams.push([stream as ChangeStream<never>, handler as (change: never) => void]);
  }

  /**
   * Takes in at most `limit` changes of all tables together; whether more may be waiting. When it returns false, every table was
   * taken in up to the same moment, and `snapshot` is that moment.
   */
  pull(limit: number): boolean {
    let left = limit;
    for (const [stream, take] of this.#streams) {
      const changes = stream.next(left);
      for (const change of changes) take(change as never);
      left -= changes.length;
      if (left <= 0) return true;
    }
    this.#snapshot[Symbol.dispose]();
    this.#snapshot = this.#db.read();
    return false;
  }

  /** Calls back once, when a table has something to pull (at once when it has already). Returns what takes it back. */
  onPending(callback: () => void): () => void {
    let armed = true;
    const once = (): void => {
      if (!armed) return;
      armed = false;
      for (const off of offs) off();
      callback();
    };
    const offs: (() => void)[] = [];
    for (const [stream] of this.#streams) {
      const watch = stream.watch();
      if (watch.fired) {
        queueMicrotask(once);
        break;
      }
      offs.push(watch.onFire(once));
    }
    return () => {
      armed = false;
      for (const off of offs) off();
    };
  }

  /** Ends the snapshot and the change streams. */
  dispose(): void {
    for (const [stream] of this.#streams) stream[Symbol.dispose]();
    this.#snapshot[Symbol.dispose]();
  }
}
