/** A map from a key to a set of values; empty sets are not kept. */
export class Multi<K, V> {
  readonly #sets = new Map<K, Set<V>>();

  add(key: K, value: V): void {
    const set = this.#sets.get(key);
    if (set) set.add(value);
    else this.#sets.set(key, new Set([value]));
  }

  delete(key: K, value: V): void {
    const set = this.#sets.get(key);
    if (set?.delete(value) && set.size === 0) this.#sets.delete(key);
  }

  has(key: K): boolean {
    return this.#sets.has(key);
  }

  get(key: K): ReadonlySet<V> {
    return this.#sets.get(key) ?? EMPTY;
  }
}

const EMPTY: ReadonlySet<never> = new Set();

/** Whether an ascending list holds the number. */
export function includesSorted(list: readonly number[], value: number): boolean {
  let low = 0;
  let high = list.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if ((list[middle] ?? 0) < value) low = middle + 1;
    else high = middle;
  }
  return list[low] === value;
}
