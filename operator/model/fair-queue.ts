/**
 * Changes that wait to be taken in. Those of one owner are taken one after another, those of several in turns: who brings ten thousand waits
 * for ten thousand, who brings one for one of each of the others, or two of those whose turn was not over.
 */
import {
  type AnyTable,
  type Change,
  type Key,
  keys,
  type Reader,
  type StateDB,
  type Table,
  type WriteTxn,
} from '@weir/statedb';
import { type TurnOwner, Turns, turnTable } from './turns.ts';

interface Waiting<T> {
  readonly key: string;
  readonly owner: string;
  /** Revision of the earliest of the row's changes that wait: its place among the owner's. */
  readonly since: number;
  /** The last of them. */
  readonly change: Change<T>;
}

export interface FairQueueOptions<T> {
  /** Of the queue's tables. */
  readonly name: string;
  /** A row's own. */
  readonly keyOf: (row: T) => Key;
  readonly ownerOf: (row: T) => string;
}

export class FairQueue<T> {
  readonly #options: FairQueueOptions<T>;
  readonly #waiting: Table<Waiting<T>>;
  readonly #owners: Table<TurnOwner>;
  readonly #turns: Turns;

  constructor(db: StateDB, options: FairQueueOptions<T>) {
    this.#options = options;
    const { name } = options;
    this.#waiting = db.table<Waiting<T>>({
      name: `queued-${name}`,
      key: ({ key }) => key,
      indexes: [{ name: 'place', keys: ({ owner, since }) => [keys.join(owner, keys.uint(since))] }],
    });
    this.#owners = turnTable(db, `queued-${name}-owners`);
    this.#turns = new Turns(this.#owners);
  }

  get tables(): readonly AnyTable[] {
    return [this.#waiting, this.#owners];
  }

  /** Queues a change. Of a row that waits already the last change counts, in the place of the earliest. */
  put(txn: WriteTxn, change: Change<T>): void {
    const { keyOf, ownerOf } = this.#options;
    const key = keyOf(change.row);
    const there = txn.get(this.#waiting, key);
    if (there !== undefined) {
      txn.upsert(this.#waiting, { ...there, since: Math.min(there.since, change.revision), change });
      return;
    }
    const owner = ownerOf(change.row);
    txn.insert(this.#waiting, { key, owner, since: change.revision, change });
    this.#turns.join(txn, owner);
  }

  /** The row of this key waits no more. */
  remove(txn: WriteTxn, key: Key): void {
    txn.delete(this.#waiting, key);
  }

  /** Whether the row of this key waits. */
  has(reader: Reader, key: Key): boolean {
    return reader.has(this.#waiting, key);
  }

  /** The row of this key as it waits. */
  get(reader: Reader, key: Key): T | undefined {
    return reader.get(this.#waiting, key)?.change.row;
  }

  isEmpty(reader: Reader): boolean {
    return this.waits(reader) === 0;
  }

  /** How many rows wait. */
  waits(reader: Reader): number {
    return reader.count(this.#waiting);
  }

  /** Rows that wait: of one owner, in their order, or all. */
  *waiting(reader: Reader, owner?: string): Generator<T> {
    const rows =
      owner === undefined ? reader.all(this.#waiting) : reader.prefix(this.#waiting, keys.join(owner), 'place');
    for (const { change } of rows) yield change.row;
  }

  /** The next change, which waits no more. */
  take(txn: WriteTxn): Change<T> | undefined {
    const next = this.#turns.next(txn, (owner) => {
      const [first] = txn.prefix(this.#waiting, keys.join(owner), 'place');
      return first;
    });
    if (next !== undefined) txn.delete(this.#waiting, next.key);
    return next?.change;
  }

  /** Queues a change that was taken, and is not done with: it is its owner's next. */
  putBack(txn: WriteTxn, change: Change<T>): void {
    const { keyOf, ownerOf } = this.#options;
    txn.insert(this.#waiting, { key: keyOf(change.row), owner: ownerOf(change.row), since: 0, change });
  }
}
