/**
 * Work that waits, in turns of its owners: who brings ten thousand pieces waits for ten thousand, who brings one for one of each of the
 * others, or two of those whose turn was not over. The pieces of one owner are done in the order in which they came.
 */
import { type AnyTable, keys, type Reader, type StateDB, type Table, type WriteTxn } from '@weir/statedb';
import { type TurnOwner, Turns, turnTable } from './turns.ts';

export interface Queued {
  readonly key: string;
  /** Whose turn it takes. */
  readonly owner: string;
}

interface Waiting<T> {
  readonly item: T;
  /** Its place among the owner's. */
  readonly since: number;
}

export class FairQueue<T extends Queued> {
  readonly #waiting: Table<Waiting<T>>;
  readonly #owners: Table<TurnOwner>;
  readonly #turns: Turns;

  /** @param name of the queue's tables */
  constructor(db: StateDB, name: string) {
    this.#waiting = db.table<Waiting<T>>({
      name,
      key: ({ item }) => item.key,
      indexes: [{ name: 'place', keys: ({ item, since }) => [keys.join(item.owner, keys.uint(since))] }],
    });
    this.#owners = turnTable(db, `${name}Owners`);
    this.#turns = new Turns(this.#owners);
  }

  get tables(): readonly AnyTable[] {
    return [this.#waiting, this.#owners];
  }

  /** Queues an item. One of the same key that waits already gives it its place. */
  put(txn: WriteTxn, item: T): void {
    const there = txn.get(this.#waiting, item.key);
    txn.upsert(this.#waiting, { item, since: there?.since ?? txn.revision(this.#waiting) + 1 });
    this.#turns.join(txn, item.owner);
  }

  /** Queues an item that was taken and is not done, behind the owner's others. One that was put meanwhile stays instead. */
  putBack(txn: WriteTxn, item: T): void {
    if (!this.has(txn, item.key)) this.put(txn, item);
  }

  remove(txn: WriteTxn, key: string): void {
    txn.delete(this.#waiting, key);
  }

  has(reader: Reader, key: string): boolean {
    return reader.has(this.#waiting, key);
  }

  isEmpty(reader: Reader): boolean {
    return reader.count(this.#waiting) === 0;
  }

  /** The next item, which waits no more. */
  take(txn: WriteTxn): T | undefined {
    const next = this.#turns.next(txn, (owner) => {
      const [first] = txn.prefix(this.#waiting, keys.join(owner), 'place');
      return first;
    });
    if (next !== undefined) txn.delete(this.#waiting, next.item.key);
    return next?.item;
  }
}
