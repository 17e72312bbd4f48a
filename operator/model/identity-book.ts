/**
 * Which label set has which number, and which numbers are unused since when. Shows them in the desired table, as soon as
 * that is complete.
 */
import {
  CLUSTER_FIRST,
  CLUSTER_LAST,
  IdentityExhaustedError,
  type IdentityRange,
  identityAfter,
  unusedIdentity,
} from '@weir/identity';
import { type LabelMap, labelsKey } from '@weir/labels';
import type { AnyTable, Reader, StateDB, Table, WriteTxn } from '@weir/statedb';
import { type Desired, show } from '../tables.ts';
import type { IdentityRow } from '../types.ts';
import { identityKey, type KnownIdentity } from './known-identities.ts';
import type { Step } from './steps.ts';

const RANGE: IdentityRange = { first: CLUSTER_FIRST, last: CLUSTER_LAST };

/**
 * Where the search for an unused number goes on; the table has one row. It is after the number that was given out last, which stays
 * in the API for that (`collect`): so a leader that adopts goes on where the one before was, and numbers that were given up rest
 * while the others of the range are given out. Whoever still takes one for what it was meets nobody else under it.
 */
interface Cursor {
  readonly next: number;
}

const CURSOR = 'cursor';

export class IdentityBook {
  readonly #known: Table<KnownIdentity>;
  readonly #cursor: Table<Cursor>;
  readonly #desired: Table<Desired<IdentityRow>>;

  constructor(db: StateDB, known: Table<KnownIdentity>, desired: Table<Desired<IdentityRow>>) {
    this.#known = known;
    this.#cursor = db.table<Cursor>({ name: 'identity-cursor', key: () => CURSOR });
    this.#desired = desired;
  }

  get tables(): readonly AnyTable[] {
    return [this.#known, this.#cursor];
  }

  /**
   * Takes over an identity that exists already; to be called in the order in which they were given out. A number outside of the
   * cluster's range, or a known one, is ignored.
   */
  adopt(txn: WriteTxn, row: IdentityRow, now: number): boolean {
    const { id } = row;
    if (!Number.isInteger(id) || id < RANGE.first || id > RANGE.last || txn.has(this.#known, identityKey(id))) {
      return false;
    }
    this.#add(txn, { row, unusedSince: now });
    this.#goOnAfter(txn, id);
    return true;
  }

  /**
   * The number of a label set, for a pod that has it from now on; allocated when there is none.
   * Throws IdentityExhaustedError when no number is left.
   */
  use(txn: WriteTxn, labels: LabelMap): { readonly id: number; readonly allocated: boolean } {
    // The lowest wins.
    const [known] = txn.list(this.#known, 'labels', labelsKey(labels));
    if (known !== undefined) {
      if (known.unusedSince !== undefined) txn.upsert(this.#known, { row: known.row, unusedSince: undefined });
      return { id: known.row.id, allocated: false };
    }
    // Pods that wait while the range is used up do not search it each.
    if (txn.count(this.#known) > RANGE.last - RANGE.first) throw new IdentityExhaustedError(RANGE.first, RANGE.last);
    const id = unusedIdentity(RANGE, this.#next(txn), (other) => txn.has(this.#known, identityKey(other)));
    this.#goOnAfter(txn, id);
    this.#add(txn, { row: { id, labels }, unusedSince: undefined });
    return { id, allocated: true };
  }

  /** No pod has the number any more. */
  release(txn: WriteTxn, id: number, now: number): void {
    const known = txn.get(this.#known, identityKey(id));
    if (known?.unusedSince !== undefined) throw new RangeError(`identity ${id} is released but not in use`);
    if (known !== undefined) txn.upsert(this.#known, { row: known.row, unusedSince: now });
  }

  /** Forgets the identities that nobody has used for `graceMs`, but for the last that was given out; returns their numbers. */
  collect(txn: WriteTxn, now: number, graceMs: number): number[] {
    const gone: number[] = [];
    const next = this.#next(txn);
    for (const { row, unusedSince = now } of txn.list(this.#known, 'unused', '')) {
      if (now - unusedSince < graceMs || identityAfter(RANGE, row.id) === next) continue;
      gone.push(row.id);
      txn.delete(this.#known, identityKey(row.id));
      txn.delete(this.#desired, String(row.id));
    }
    return gone;
  }

  labels(txn: WriteTxn, id: number): LabelMap | undefined {
    return txn.get(this.#known, identityKey(id))?.row.labels;
  }

  /** Steps that show all of them. */
  *showAll(reader: Reader): Generator<Step> {
    for (const { row } of reader.all(this.#known)) yield (txn) => show(txn, this.#desired, row);
  }

  #add(txn: WriteTxn, known: KnownIdentity): void {
    txn.insert(this.#known, known);
    if (txn.initialised(this.#desired)) show(txn, this.#desired, known.row);
  }

  #next(txn: WriteTxn): number {
    return txn.get(this.#cursor, CURSOR)?.next ?? RANGE.first;
  }

  #goOnAfter(txn: WriteTxn, id: number): void {
    txn.upsert(this.#cursor, { next: identityAfter(RANGE, id) });
  }
}
