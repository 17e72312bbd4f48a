/**
 * Identities of addresses, in the kernel: that of exactly the selectors of the address's names, where the agent has given one; else the one of the largest
 * part of them, and of several the one that it has, so that pods of that part keep it; never one of a selector that none of the names is of.
 */
import type { WriteTxn } from '@weir/statedb';
import {
  type AddressRow,
  type NamesIdentity,
  numberKey,
  type ProxyTables,
  type SelectorCount,
  setKey,
} from './tables.ts';

/** Rows of the kernel: which identity an address has by its names. */
export interface Rows {
  /** False: the kernel has no place for it. */
  set(address: string, identity: number): boolean;
  delete(address: string): void;
}

export class AddressRows {
  readonly #tables: ProxyTables;
  readonly #rows: Rows;
  readonly #onLacking: (address: string) => void;

  /** @param onLacking told of an address that has no identity of exactly its selectors any more, or not yet */
  constructor(tables: ProxyTables, rows: Rows, onLacking: (address: string) => void) {
    this.#tables = tables;
    this.#rows = rows;
    this.#onLacking = onLacking;
  }

  /** The address has so many names more (or less) that are of these selectors. */
  count(txn: WriteTxn, address: string, selectors: readonly number[], by: 1 | -1): void {
    if (selectors.length === 0) return;
    const before = txn.get(this.#tables.addresses, address);
    const counts = new Map((before?.selectors ?? []).map(({ selector, names }) => [selector, names]));
    for (const selector of selectors) counts.set(selector, (counts.get(selector) ?? 0) + by);
    const left = [...counts].filter(([, names]) => names > 0).sort(([one], [other]) => one - other);
    const after = left.map(([selector, names]) => ({ selector, names }));
    this.#put(txn, before, address, after);
  }

  /** Looks again at the identity of an address. */
  settle(txn: WriteTxn, row: AddressRow): void {
    this.#put(txn, row, row.address, row.selectors);
  }

  #put(txn: WriteTxn, before: AddressRow | undefined, address: string, selectors: readonly SelectorCount[]): void {
    const { addresses } = this.#tables;
    const wanted = selectors.map(({ selector }) => selector);
    const found = this.#identityOf(txn, wanted, before?.identity);
    const identity = this.#write(address, before?.identity, found?.identity);
    const exact = identity !== undefined && found?.selectors.length === selectors.length;
    if (selectors.length === 0) txn.delete(addresses, address);
    else txn.upsert(addresses, { address, selectors, identity, exact });
    if (!exact && selectors.length > 0 && isNews(before, wanted)) this.#onLacking(address);
  }

  /** Returns what the kernel has then. */
  #write(address: string, before: number | undefined, wanted: number | undefined): number | undefined {
    if (wanted === before) return before;
    if (wanted !== undefined && this.#rows.set(address, wanted)) return wanted;
    if (before !== undefined) this.#rows.delete(address);
    return undefined;
  }

  #identityOf(txn: WriteTxn, wanted: readonly number[], before: number | undefined): NamesIdentity | undefined {
    const { identities } = this.#tables;
    for (const exact of txn.list(identities, 'set', setKey(wanted))) return exact;
    const all = new Set(wanted);
    const fits = ({ selectors }: NamesIdentity): boolean => selectors.every((one) => all.has(one));
    const present = before === undefined ? undefined : txn.get(identities, numberKey(before));
    let best = present !== undefined && fits(present) ? present : undefined;
    for (const selector of wanted)
      for (const each of txn.list(identities, 'selector', numberKey(selector)))
        if (each.selectors.length > (best?.selectors.length ?? 0) && fits(each)) best = each;
    return best;
  }
}

function isNews(before: AddressRow | undefined, wanted: readonly number[]): boolean {
  return (
    before === undefined || before.exact || setKey(before.selectors.map(({ selector }) => selector)) !== setKey(wanted)
  );
}
