/** What slots hold though nothing wants it any more, until no packet can look at it. */
import type { Direction } from '@weir/policy';
import { keys, type StateDB, type Table } from '@weir/statedb';
import { tableKey } from '../create-tables.ts';
import { GRACE_MS } from '../derive/contract.ts';
import type { SlotContent } from '../tables.ts';

/** An identity's element or a class's rows that nothing wants. Key: all but `due`, which is an index. */
interface StaleEntry {
  readonly slot: number;
  readonly direction: Direction;
  readonly part: 'elements' | 'rows';
  readonly number: number;
  /** When it may go: whole milliseconds. */
  readonly due: number;
}

/** A slot that holds something else than it should, too. Key: `slot`. */
interface TrimmedSlot {
  readonly slot: number;
  readonly wanted: SlotContent;
}

/** A slot that no word names any more. Key: `slot`. Index: `due`. */
interface RetiredSlot {
  readonly slot: number;
  /** When its content may go or, once `emptied`, its maps: whole milliseconds. */
  readonly due: number;
  readonly emptied: boolean;
}

/** Of an entry all but when it may go. */
type StaleOf = Omit<StaleEntry, 'due' | 'number'>;

/** Tables `trimmedSlots`, `staleEntries` and `retiredSlots`. */
export class SlotLeftovers {
  readonly #db: StateDB;
  readonly #now: () => number;
  readonly #trimmed: Table<TrimmedSlot>;
  readonly #stale: Table<StaleEntry>;
  readonly #retired: Table<RetiredSlot>;

  /** `now`: milliseconds, any clock that only grows. */
  constructor(db: StateDB, now: () => number) {
    this.#db = db;
    this.#now = now;
    this.#trimmed = db.table<TrimmedSlot>({ name: 'trimmedSlots', key: (row) => tableKey.slot(row.slot) });
    const indexes = [{ name: 'due', keys: ({ due }: { readonly due: number }) => [keys.uint(due)] }];
    this.#stale = db.table<StaleEntry>({ name: 'staleEntries', key: staleKey, indexes });
    this.#retired = db.table<RetiredSlot>({ name: 'retiredSlots', key: (row) => tableKey.slot(row.slot), indexes });
  }

  /** The slot is in use, and its wanted content is not stale. */
  want(slot: number, wanted: SlotContent): void {
    this.#db.write([this.#retired, this.#stale], (txn) => {
      txn.delete(this.#retired, tableKey.slot(slot));
      for (const entry of txn.prefix(this.#stale, keys.join(tableKey.slot(slot)))) {
        const { direction, part, number } = entry;
        if (wanted[part][direction].has(number)) txn.delete(this.#stale, staleKey(entry));
      }
    });
  }

  /** The slot has its wanted content, and perhaps more. */
  applied(slot: number, wanted: SlotContent): void {
    this.#db.write([this.#trimmed], (txn) => txn.upsert(this.#trimmed, { slot, wanted }));
  }

  /** Slots that may hold more than they are to hold. */
  untidy(): readonly TrimmedSlot[] {
    using snapshot = this.#db.read();
    return [...snapshot.all(this.#trimmed)];
  }

  /** The slot holds nothing more. */
  tidied(slot: number): void {
    this.#db.write([this.#trimmed], (txn) => txn.delete(this.#trimmed, tableKey.slot(slot)));
  }

  /** When the slot's content, or its maps, may go; undefined: it is in use. */
  retirement(slot: number): RetiredSlot | undefined {
    using snapshot = this.#db.read();
    return snapshot.get(this.#retired, tableKey.slot(slot));
  }

  /** No word names the slot any more. `emptied`: it has no content, but maps. */
  retire(slot: number, ms: number, emptied: boolean): void {
    const due = Math.ceil(this.#now() + ms);
    this.#db.write([this.#retired], (txn) => txn.upsert(this.#retired, { slot, due, emptied }));
  }

  /** Retired slots whose time has come. */
  due(): readonly RetiredSlot[] {
    using snapshot = this.#db.read();
    return [...snapshot.range(this.#retired, '', keys.uint(Math.floor(this.#now()) + 1), 'due')];
  }

  /** When something is next to be removed; undefined when nothing waits. */
  nextDue(): number | undefined {
    using snapshot = this.#db.read();
    const [stale] = snapshot.lowerBound(this.#stale, '', 'due');
    const [retired] = snapshot.lowerBound(this.#retired, '', 'due');
    if (stale === undefined || retired === undefined) return (stale ?? retired)?.due;
    return Math.min(stale.due, retired.due);
  }

  /** The kernel has the slot no more. */
  gone(slot: number): void {
    this.#db.write([this.#trimmed, this.#retired, this.#stale], (txn) => {
      txn.delete(this.#trimmed, tableKey.slot(slot));
      txn.delete(this.#retired, tableKey.slot(slot));
      for (const entry of txn.prefix(this.#stale, keys.join(tableKey.slot(slot))))
        txn.delete(this.#stale, staleKey(entry));
    });
  }

  /** Those that have been stale for long enough; the first look starts the count. */
  stale(of: StaleOf, numbers: readonly number[]): number[] {
    const now = this.#now();
    return this.#db.write([this.#stale], (txn) =>
      numbers.filter((number) => {
        const entry = { ...of, number };
        const known = txn.get(this.#stale, staleKey(entry));
        if (known === undefined) txn.insert(this.#stale, { ...entry, due: Math.ceil(now + GRACE_MS) });
        return known !== undefined && known.due <= now;
      }),
    );
  }

  /** They are deleted, or wanted again. */
  fresh(of: StaleOf, numbers: readonly number[]): void {
    this.#db.write([this.#stale], (txn) => {
      for (const number of numbers) txn.delete(this.#stale, staleKey({ ...of, number }));
    });
  }
}

function staleKey({ slot, direction, part, number }: Omit<StaleEntry, 'due'>): string {
  return keys.join(tableKey.slot(slot), direction, part, keys.uint(number));
}
