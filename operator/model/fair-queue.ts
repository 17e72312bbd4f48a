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

interface Waiting<T> {
  readonly key: string;
  readonly owner: string;
  /** Revision of the earliest of the row's changes that wait: its place among the owner's. */
  readonly since: number;
  /** The last of them. */
  readonly change: Change<T>;
}

/** Who takes part in the turns. In each turn an owner is taken from at most once. */
interface Owner {
  readonly owner: string;
  /** The next. Who has nothing more keeps it until it is over: who comes again has no other. */
  readonly turn: number;
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
  readonly #owners: Table<Owner>;

  constructor(db: StateDB, options: FairQueueOptions<T>) {
    this.#options = options;
    const { name } = options;
    this.#waiting = db.table<Waiting<T>>({
      name: `queued-${name}`,
      key: ({ key }) => key,
      indexes: [{ name: 'place', keys: ({ owner, since }) => [keys.join(owner, keys.uint(since))] }],
    });
    this.#owners = db.table<Owner>({
      name: `queued-${name}-owners`,
      key: ({ owner }) => owner,
      indexes: [{ name: 'turn', keys: ({ turn }) => [keys.uint(turn)] }],
    });
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
    const { turn } = txn.get(this.#owners, owner) ?? this.#first(txn) ?? { turn: 0 };
    txn.insert(this.#waiting, { key, owner, since: change.revision, change });
    txn.upsert(this.#owners, { owner, turn });
  }

  /** The row of this key waits no more. */
  remove(txn: WriteTxn, key: Key): void {
    txn.delete(this.#waiting, key);
  }

  /** Whether the row of this key waits. */
  has(reader: Reader, key: Key): boolean {
    return reader.has(this.#waiting, key);
  }

  isEmpty(reader: Reader): boolean {
    return reader.count(this.#waiting) === 0;
  }

  /** The next change, which waits no more. */
  take(txn: WriteTxn): Change<T> | undefined {
    for (;;) {
      const first = this.#first(txn);
      if (first === undefined) return undefined;
      const { owner, turn } = first;
      const [next] = txn.prefix(this.#waiting, keys.join(owner), 'place');
      if (next === undefined) {
        txn.delete(this.#owners, owner);
        continue;
      }
      txn.delete(this.#waiting, next.key);
      txn.upsert(this.#owners, { owner, turn: turn + 1 });
      return next.change;
    }
  }

  /** Queues a change that was taken, and is not done with: it is its owner's next. */
  putBack(txn: WriteTxn, change: Change<T>): void {
    const { keyOf, ownerOf } = this.#options;
    txn.insert(this.#waiting, { key: keyOf(change.row), owner: ownerOf(change.row), since: 0, change });
  }

  #first(reader: Reader): Owner | undefined {
    const [first] = reader.prefix(this.#owners, '', 'turn');
    return first;
  }
}
