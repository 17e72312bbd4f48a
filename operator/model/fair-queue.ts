/**
 * Changes that wait to be taken in. Those of one owner are taken one after another, those of several in turns: who brings ten thousand waits
 * for ten thousand, who brings one for one of each of the others.
 */
import { type AnyTable, type Change, keys, type Reader, type StateDB, type Table, type WriteTxn } from '@weir/statedb';

interface Waiting<T> {
  readonly key: string;
  readonly owner: string;
  readonly turn: number;
  readonly change: Change<T>;
}

/** Who has changes that wait. */
interface Owner {
  readonly owner: string;
  readonly waiting: number;
  /** Turn of the last of them. */
  readonly last: number;
}

export interface FairQueueOptions<T> {
  /** Whose changes are queued; names the queue's tables. */
  readonly table: Table<T>;
  readonly ownerOf: (row: T) => string;
}

export class FairQueue<T> {
  readonly #options: FairQueueOptions<T>;
  readonly #waiting: Table<Waiting<T>>;
  readonly #owners: Table<Owner>;

  constructor(db: StateDB, options: FairQueueOptions<T>) {
    this.#options = options;
    const { name } = options.table;
    this.#waiting = db.table<Waiting<T>>({
      name: `queued-${name}`,
      key: ({ key }) => key,
      indexes: [{ name: 'turn', keys: ({ turn }) => [keys.uint(turn)] }],
    });
    this.#owners = db.table<Owner>({ name: `queued-${name}-owners`, key: ({ owner }) => owner });
  }

  get tables(): readonly AnyTable[] {
    return [this.#waiting, this.#owners];
  }

  /** Queues a change. Of a row that waits already the last change counts, in the turn of the first. */
  put(txn: WriteTxn, change: Change<T>): void {
    const { table, ownerOf } = this.#options;
    const key = table.spec.key(change.row);
    const there = txn.get(this.#waiting, key);
    if (there !== undefined) {
      txn.upsert(this.#waiting, { ...there, change });
      return;
    }
    const owner = ownerOf(change.row);
    const known = txn.get(this.#owners, owner);
    const turn = known === undefined ? (this.#first(txn)?.turn ?? 0) : known.last + 1;
    txn.insert(this.#waiting, { key, owner, turn, change });
    txn.upsert(this.#owners, { owner, waiting: (known?.waiting ?? 0) + 1, last: turn });
  }

  /** The next change, which waits no more. */
  take(txn: WriteTxn): Change<T> | undefined {
    const first = this.#first(txn);
    if (first === undefined) return undefined;
    txn.delete(this.#waiting, first.key);
    const owner = txn.get(this.#owners, first.owner);
    if (owner !== undefined && owner.waiting > 1) txn.upsert(this.#owners, { ...owner, waiting: owner.waiting - 1 });
    else txn.delete(this.#owners, first.owner);
    return first.change;
  }

  #first(reader: Reader): Waiting<T> | undefined {
    const [first] = reader.prefix(this.#waiting, '', 'turn');
    return first;
  }
}
