/**
 * Which label set has which number, and which numbers are unused since when. Shows them in the desired table, as soon as
 * that is complete.
 *
 * Numbers are few and everybody who may label a pod takes them. Guarantees: a namespace has no more numbers than its quota, unused
 * ones included, but for those that were there before the quota; what it asks for beyond that takes the place of its own longest
 * unused number. The same holds of who else pays (identity-accounts.ts). When nearly the whole range is taken, a new number takes the place of the longest unused one of any namespace. A number
 * that a pod has is never taken from it, nor is any before every pod has been seen once.
 */
import { CLUSTER_FIRST, CLUSTER_LAST, type IdentityRange, identityAfter, unusedIdentity } from '@weir/identity';
import { type LabelMap, labelExcess, labelsKey, namespaceOf } from '@weir/labels';
import { type AnyTable, keys, type Reader, type StateDB, type Table, type WriteTxn } from '@weir/statedb';
import { NoIdentityError } from '../errors.ts';
import { type Desired, show } from '../tables.ts';
import type { IdentityRow } from '../types.ts';
import { type AccountLimits, accountNames, IdentityAccounts, type Payer } from './identity-accounts.ts';
import { identityKey, type KnownIdentity } from './known-identities.ts';
import type { Step } from './steps.ts';

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

export interface IdentityBookOptions {
  /** Numbers that are given out. Default: all that pods of the cluster can have. */
  readonly range?: IdentityRange;
  /** Default: as many as there are. */
  readonly limits?: AccountLimits;
  /** An account has fewer numbers, or fewer in use. */
  readonly onFreed?: (txn: WriteTxn, account: string) => void;
  /** A number stands for nothing any more. */
  readonly onForgotten?: (txn: WriteTxn, row: IdentityRow) => void;
}

export class IdentityBook {
  readonly #known: Table<KnownIdentity>;
  readonly #accounts: IdentityAccounts;
  readonly #cursor: Table<Cursor>;
  readonly #desired: Table<Desired<IdentityRow>>;
  readonly #range: IdentityRange;
  readonly #options: IdentityBookOptions;

  constructor(
    db: StateDB,
    known: Table<KnownIdentity>,
    desired: Table<Desired<IdentityRow>>,
    options: IdentityBookOptions = {},
  ) {
    this.#known = known;
    this.#accounts = new IdentityAccounts(db, options.limits ?? { perNamespace: 0, perPair: 0, perNode: 0 });
    this.#cursor = db.table<Cursor>({ name: 'identity-cursor', key: () => CURSOR });
    this.#desired = desired;
    this.#range = options.range ?? CLUSTER_RANGE;
    this.#options = options;
  }

  get tables(): readonly AnyTable[] {
    return [this.#known, ...this.#accounts.tables, this.#cursor];
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
    // Who pays for it is settled when all pods have been seen.
    this.#add(txn, { row, unusedSince: now, payer: undefined, owed: false });
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
   * The number of a label set, for a pod that has it from now on and `payer` pays for; allocated when there is none.
   * Throws NoIdentityError when there is no number that could be given, or pods that wait for one in an account of the
   * namespace (`isAwaited`) are to have it first.
   */
  use(
    txn: WriteTxn,
    labels: LabelMap,
    payer?: Payer,
    isAwaited: (account: string) => boolean = () => false,
  ): { readonly id: number; readonly allocated: boolean } {
    const excess = labelExcess(labels);
    if (excess !== undefined) throw NoIdentityError.labels(excess);
    // The lowest wins.
    const [known] = txn.list(this.#known, 'labels', labelsKey(labels));
    if (known !== undefined) {
      const { id } = known.row;
      if (known.unusedSince !== undefined) this.#takeUp(txn, known, payer);
      return { id, allocated: false };
    }
    const namespace = namespaceOf(labels);
    // What nodes pay is not known before all pods have been seen: a mirror pod with new labels waits until then.
    const isUnknown = payer !== undefined && !this.isShown(txn);
    const lack = isUnknown
      ? this.#accounts.lack(txn, namespace, payer)
      : (this.#accounts.awaited(txn, namespace, payer, isAwaited) ?? this.#makeRoom(txn, namespace, payer));
    if (lack !== undefined) throw lack;
    this.#makeRange(txn);
    const id = unusedIdentity(this.#range, this.#next(txn), (other) => txn.has(this.#known, identityKey(other)));
    this.#goOnAfter(txn, id);
    this.#add(txn, { row: { id, labels }, unusedSince: undefined, payer, owed: false });
    return { id, allocated: true };
  }

  /** No pod has the number any more. */
  release(txn: WriteTxn, id: number, now: number): void {
    const known = txn.get(this.#known, identityKey(id));
    if (known?.unusedSince !== undefined) throw new RangeError(`identity ${id} is released but not in use`);
    if (known === undefined) return;
    txn.upsert(this.#known, { ...known, unusedSince: now, owed: false });
    this.#freed(txn, accountsOf(known));
  }

  /** `labelsKey` of what the number stands for. */
  labelsOf(reader: Reader, id: number): string {
    const known = reader.get(this.#known, identityKey(id));
    return known === undefined ? '' : labelsKey(known.row.labels);
  }

  payer(reader: Reader, id: number): Payer {
    return reader.get(this.#known, identityKey(id))?.payer;
  }

  /**
   * Lets `payer` pay for a number from now on. Returns why it cannot: then all stays as it is.
   * `whatever it has`: it had the number before the operator started.
   */
  charge(txn: WriteTxn, id: number, payer: Payer, always?: 'whatever it has'): NoIdentityError | undefined {
    const known = txn.get(this.#known, identityKey(id));
    if (known === undefined) return undefined;
    const namespace = namespaceOf(known.row.labels);
    const before = accountsOf(known);
    const lack = always === undefined ? this.#makeRoom(txn, namespace, payer, before) : undefined;
    if (lack !== undefined) return lack;
    this.#accounts.count(txn, namespace, known.payer, -1);
    this.#accounts.count(txn, namespace, payer, 1);
    txn.upsert(this.#known, { ...known, payer, owed: false });
    const now = accountNames(namespace, payer);
    this.#freed(
      txn,
      before.filter((account) => !now.includes(account)),
    );
    return undefined;
  }

  /** A node pays though the namespace should; false: it does not any more. */
  owe(txn: WriteTxn, id: number, owed: boolean): void {
    const known = txn.get(this.#known, identityKey(id));
    if (known !== undefined && known.owed !== owed) txn.upsert(this.#known, { ...known, owed });
  }

  /** The namespace pays for what nodes pay in its stead, as far as it has room. */
  payOwed(txn: WriteTxn, namespace: string): void {
    for (const { row } of txn.list(this.#known, 'owed', namespace))
      if (this.charge(txn, row.id, undefined) !== undefined) return;
  }

  /** Whether the identity's namespace has more than it may. */
  isOverQuota(reader: Reader, id: number): boolean {
    const known = reader.get(this.#known, identityKey(id));
    return known !== undefined && this.#accounts.isOver(reader, namespaceOf(known.row.labels));
  }

  /** Forgets a number that no pod has; the last that was given stays. */
  drop(txn: WriteTxn, id: number): void {
    const known = txn.get(this.#known, identityKey(id));
    if (known?.unusedSince === undefined || identityAfter(this.#range, id) === this.#next(txn)) return;
    this.#forget(txn, known);
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
    return this.#accounts.atQuota(reader);
  }

  /** Steps that show all of them. */
  *showAll(reader: Reader): Generator<Step> {
    for (const { row } of reader.all(this.#known)) yield (txn) => show(txn, this.#desired, row);
  }

  /** A pod takes up a number that none has. When `payer` cannot pay for it, the number is given up: nodes would take the pod for known. */
  #takeUp(txn: WriteTxn, known: KnownIdentity, payer: Payer): void {
    const { id } = known.row;
    if (this.isShown(txn) && known.payer !== payer) {
      const lack = this.charge(txn, id, payer);
      if (lack !== undefined) {
        this.drop(txn, id);
        throw lack;
      }
    }
    const now = txn.get(this.#known, identityKey(id));
    if (now !== undefined) txn.upsert(this.#known, { ...now, unusedSince: undefined });
  }

  /** Sees to it that `payer` may have one number more in the namespace; returns why not. `instead`: accounts that pay for it already. */
  #makeRoom(
    txn: WriteTxn,
    namespace: string,
    payer: Payer,
    instead: readonly string[] = [],
  ): NoIdentityError | undefined {
    for (;;) {
      const full = this.#accounts.full(txn, namespace, payer, instead);
      if (full === undefined) return undefined;
      const oldest = this.#longestUnused(txn, 'unused-in', keys.join(full.name));
      if (oldest === undefined) return full.lack();
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
    this.#accounts.count(txn, namespaceOf(known.row.labels), known.payer, 1);
    if (this.isShown(txn)) show(txn, this.#desired, known.row);
  }

  #forget(txn: WriteTxn, known: KnownIdentity): void {
    const { row, payer } = known;
    txn.delete(this.#known, identityKey(row.id));
    txn.delete(this.#desired, String(row.id));
    this.#accounts.count(txn, namespaceOf(row.labels), payer, -1);
    this.#options.onForgotten?.(txn, row);
    this.#freed(txn, accountsOf(known));
  }

  #freed(txn: WriteTxn, accounts: readonly string[]): void {
    for (const account of accounts) this.#options.onFreed?.(txn, account);
  }

  #next(txn: WriteTxn): number {
    return txn.get(this.#cursor, CURSOR)?.next ?? this.#range.first;
  }

  #goOnAfter(txn: WriteTxn, id: number): void {
    txn.upsert(this.#cursor, { next: identityAfter(this.#range, id) });
  }
}

function accountsOf({ row, payer }: KnownIdentity): readonly string[] {
  return accountNames(namespaceOf(row.labels), payer);
}
