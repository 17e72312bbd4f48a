import type { WriteTxn } from '@weir/statedb';

/** Keys that a transaction has yet to look at before it ends: of that transaction only, however it ends. */
export class Marks<K> {
  readonly #of = new WeakMap<WriteTxn, Set<K>>();

  add(txn: WriteTxn, key: K): void {
    const marks = this.#of.get(txn);
    if (marks === undefined) this.#of.set(txn, new Set([key]));
    else marks.add(key);
  }

  /** What was marked since the last call. */
  take(txn: WriteTxn): Iterable<K> {
    const marks = this.#of.get(txn) ?? [];
    this.#of.delete(txn);
    return marks;
  }
}
