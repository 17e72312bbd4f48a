/**
 * Owners whose work is done in turns, of each at most one piece in a turn. Who comes takes part in the turn that is under way; who has nothing
 * more keeps it until it is over: who comes again has no other.
 */
import { keys, type Reader, type StateDB, type Table, type WriteTxn } from '@weir/statedb';

/** Who takes part. */
export interface TurnOwner {
  readonly owner: string;
  /** The next. */
  readonly turn: number;
}

export function turnTable(db: StateDB, name: string): Table<TurnOwner> {
  return db.table<TurnOwner>({
    name,
    key: ({ owner }) => owner,
    indexes: [{ name: 'turn', keys: ({ turn }) => [keys.uint(turn)] }],
  });
}

export class Turns {
  readonly #owners: Table<TurnOwner>;

  constructor(owners: Table<TurnOwner>) {
    this.#owners = owners;
  }

  /** The owner has work. */
  join(txn: WriteTxn, owner: string): void {
    if (!txn.has(this.#owners, owner)) txn.insert(this.#owners, { owner, turn: this.#first(txn)?.turn ?? 0 });
  }

  /** The next piece of work; `nextOf` tells an owner's, undefined: there is none. */
  next<T>(txn: WriteTxn, nextOf: (owner: string) => T | undefined): T | undefined {
    for (;;) {
      const first = this.#first(txn);
      if (first === undefined) return undefined;
      const next = nextOf(first.owner);
      if (next === undefined) txn.delete(this.#owners, first.owner);
      else {
        txn.upsert(this.#owners, { ...first, turn: first.turn + 1 });
        return next;
      }
    }
  }

  #first(reader: Reader): TurnOwner | undefined {
    const [first] = reader.prefix(this.#owners, '', 'turn');
    return first;
  }
}
