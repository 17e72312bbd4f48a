/**
 * Which label set has which number, and which numbers are unused since when. Shows them in the desired table, as soon as
 * that is complete.
 *
 * Numbers are few and everybody who may label a pod takes them. Guarantees: a namespace has no more numbers than its limit, unused
 * ones included, but for those that were there before; what it asks for beyond that takes the place of its own longest
 * unused number. When nearly the whole range is taken, a new number takes the place of the longest unused one of any namespace. A number
 * that a pod has is never taken from it, nor is any before every pod has been seen once.
 */
import { CLUSTER_FIRST, CLUSTER_LAST, type IdentityRange, identityAfter, unusedIdentity } from '@weir/identity';
import { type LabelMap, labelExcess, labelsKey, namespaceOf } from '@weir/labels';
import { type AnyTable, keys, type Reader, type StateDB, type Table, type WriteTxn } from '@weir/statedb';
import { NoIdentityError } from '../errors.ts';
import { type Desired, show } from '../tables.ts';
import type { IdentityRow } from '../types.ts';
import { identityKey, type KnownIdentity } from './known-identities.ts';
import type { Piece } from './pieces.ts';

/** All numbers that pods of the cluster can have. */
const CLUSTER_RANGE: IdentityRange = { first: CLUSTER_FIRST, last: CLUSTER_LAST };
/** Share of the range beyond which unused numbers are not kept for whoever may come back. */
const NEARLY_ALL = 0.9;

/**
 * Where the search for an unused number goes on; the table has one row. It is after the number that was given out last, which stays
 * in the API until there is another: so a leader that adopts goes on where the one before was, and numbers that were given up rest
 * while the others of the range are given out. Whoever still takes one for what it was meets nobody else under it.
 */
interface Cursor {
  readonly next: number;
}

const CURSOR = 'cursor';

/** Numbers that a namespace has, unused ones included. */
interface Count {
  readonly namespace: string;
  readonly identities: number;
}

export interface IdentityBookOptions {
  /** Numbers that are given out. Default: all that pods of the cluster can have. */
  readonly range?: IdentityRange;
  /** Most numbers of one namespace; 0: as many as there are. */
  readonly perNamespace: number;
  /** The namespace has fewer numbers, or fewer in use. */
  readonly onFreed: (txn: WriteTxn, namespace: string) => void;
  /** A number stands for nothing any more. */
  readonly onForgotten: (txn: WriteTxn, row: IdentityRow) => void;
}

export class IdentityBook {
  readonly #known: Table<KnownIdentity>;
  readonly #counts: Table<Count>;
  readonly #cursor: Table<Cursor>;
  readonly #desired: Table<Desired<IdentityRow>>;
  readonly #range: IdentityRange;
  readonly #options: IdentityBookOptions;

  constructor(
    db: StateDB,
    known: Table<KnownIdentity>,
    desired: Table<Desired<IdentityRow>>,
    options: IdentityBookOptions,
  ) {
    this.#known = known;
    this.#counts = db.table<Count>({ name: 'identityCounts', key: ({ namespace }) => namespace });
    this.#cursor = db.table<Cursor>({ name: 'identityCursor', key: () => CURSOR });
    this.#desired = desired;
    this.#range = options.range ?? CLUSTER_RANGE;
    this.#options = options;
  }

  get tables(): readonly AnyTable[] {
    return [this.#known, this.#counts, this.#cursor];
  }

  /**
   * Takes over an identity that exists already; to be called in the order in which they were given out. A number outside of the
   * cluster's range, a known one, or one of more labels than an identity may have is ignored.
   */
  adopt(txn: WriteTxn, row: IdentityRow, now: number): boolean {
    const { id } = row;
    const { first, last } = this.#range;
    if (!Number.isInteger(id) || id < first || id > last || txn.has(this.#known, identityKey(id))) return false;
    if (labelExcess(row.labels) !== undefined) return false;
    this.#add(txn, { row, unusedSince: now });
    this.#goOnAfter(txn, id);
    return true;
  }

  /**
   * Slices name these numbers: agents take pods for what they meant, until the slices are written anew. Those that stand for nothing any more, as
   * somebody has deleted the identities, are given out last. To be called after `adopt`.
   */
  avoid(txn: WriteTxn, ids: readonly number[]): void {
    const { first, last } = this.#range;
    for (const id of ids) {
      const isFree = Number.isInteger(id) && id >= first && id <= last && !txn.has(this.#known, identityKey(id));
      if (isFree && id >= this.#next(txn)) this.#goOnAfter(txn, id);
    }
  }

  /**
   * The number of a label set, for a pod that has it from now on; allocated when there is none.
   * Throws NoIdentityError when there is no number that could be given.
   */
  use(txn: WriteTxn, labels: LabelMap): { readonly id: number; readonly allocated: boolean } {
    const excess = labelExcess(labels);
    if (excess !== undefined) throw NoIdentityError.labels(excess);
    // The lowest wins.
    const [known] = txn.list(this.#known, 'labels', labelsKey(labels));
    if (known !== undefined) {
      if (known.unusedSince !== undefined) txn.upsert(this.#known, { ...known, unusedSince: undefined });
      return { id: known.row.id, allocated: false };
    }
    this.#makeRoom(txn, namespaceOf(labels));
    this.#makeRange(txn);
    const id = unusedIdentity(this.#range, this.#next(txn), (other) => txn.has(this.#known, identityKey(other)));
    this.#goOnAfter(txn, id);
    this.#add(txn, { row: { id, labels }, unusedSince: undefined });
    return { id, allocated: true };
  }

  /** No pod has the number any more. */
  release(txn: WriteTxn, id: number, now: number): void {
    const known = txn.get(this.#known, identityKey(id));
    if (known?.unusedSince !== undefined) throw new RangeError(`identity ${id} is released but not in use`);
    if (known === undefined) return;
    txn.upsert(this.#known, { ...known, unusedSince: now });
    this.#options.onFreed(txn, namespaceOf(known.row.labels));
  }

  /** Every pod has been seen: it is known which numbers are unused. */
  isShown(reader: Reader): boolean {
    return reader.initialised(this.#desired);
  }

  /** Forgets the identities that nobody has used for `graceMs`, but for the last that was given out. */
  collect(txn: WriteTxn, now: number, graceMs: number): void {
    const next = this.#next(txn);
    for (const known of txn.prefix(this.#known, '', 'unused')) {
      const { row, unusedSince = now } = known;
      // A clock that was set back keeps what seems to be of the future.
      if (now - unusedSince < graceMs) break;
      if (identityAfter(this.#range, row.id) !== next) this.#forget(txn, known);
    }
  }

  /** Numbers that no pod has. */
  unused(reader: Reader): number {
    let count = 0;
    for (const _ of reader.prefix(this.#known, '', 'unused')) count += 1;
    return count;
  }

  /** Namespaces that have as many numbers as they may. */
  atQuota(reader: Reader): number {
    const { perNamespace } = this.#options;
    if (perNamespace === 0) return 0;
    return Array.from(reader.all(this.#counts)).filter(({ identities }) => identities >= perNamespace).length;
  }

  /** Pieces of work that show all of them. */
  *showAll(reader: Reader): Generator<Piece> {
    for (const { row } of reader.all(this.#known)) yield (txn) => show(txn, this.#desired, row);
  }

  /** Sees to it that the namespace may have one number more. */
  #makeRoom(txn: WriteTxn, namespace: string): void {
    const { perNamespace } = this.#options;
    while (perNamespace > 0 && (txn.get(this.#counts, namespace)?.identities ?? 0) >= perNamespace) {
      const oldest = this.#longestUnused(txn, 'unused-in', keys.join(namespace));
      if (oldest === undefined) throw NoIdentityError.quota(namespace, perNamespace);
      this.#forget(txn, oldest);
    }
  }

  /** Sees to it that there is one number more. */
  #makeRange(txn: WriteTxn): void {
    const { first, last } = this.#range;
    const size = last - first + 1;
    const taken = txn.count(this.#known);
    if (taken < size * NEARLY_ALL) return;
    const oldest = this.#longestUnused(txn, 'unused', '');
    if (oldest !== undefined) this.#forget(txn, oldest);
    else if (taken >= size) throw NoIdentityError.range(size);
  }

  /** None before all pods have been seen: until then nobody knows which are unused. */
  #longestUnused(txn: WriteTxn, index: string, prefix: string): KnownIdentity | undefined {
    if (!this.isShown(txn)) return undefined;
    const [oldest] = txn.prefix(this.#known, prefix, index);
    return oldest;
  }

  #add(txn: WriteTxn, known: KnownIdentity): void {
    txn.insert(this.#known, known);
    this.#count(txn, known.row, 1);
    if (this.isShown(txn)) show(txn, this.#desired, known.row);
  }

  #forget(txn: WriteTxn, { row }: KnownIdentity): void {
    txn.delete(this.#known, identityKey(row.id));
    txn.delete(this.#desired, String(row.id));
    this.#count(txn, row, -1);
    this.#options.onForgotten(txn, row);
    this.#options.onFreed(txn, namespaceOf(row.labels));
  }

  #count(txn: WriteTxn, { labels }: IdentityRow, by: 1 | -1): void {
    const namespace = namespaceOf(labels);
    const identities = (txn.get(this.#counts, namespace)?.identities ?? 0) + by;
    if (identities === 0) txn.delete(this.#counts, namespace);
    else txn.upsert(this.#counts, { namespace, identities });
  }

  #next(txn: WriteTxn): number {
    return txn.get(this.#cursor, CURSOR)?.next ?? this.#range.first;
  }

  #goOnAfter(txn: WriteTxn, id: number): void {
    txn.upsert(this.#cursor, { next: identityAfter(this.#range, id) });
  }
}
