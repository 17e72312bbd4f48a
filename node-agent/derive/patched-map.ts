/**
 * A large map of which few entries change at a time: what did not change is shared with the map before. Of n entries a change copies some √n, and
 * all of them only every √n changes.
 */

/** Entries that may be patched before all are copied, whatever the size of the map. */
const LEAST_PATCH = 16;

/** The map with these values; undefined: without that key. Both must not be edited any more. */
export function patched<K, V>(map: ReadonlyMap<K, V>, changes: ReadonlyMap<K, V | undefined>): ReadonlyMap<K, V> {
  if (changes.size === 0) return map;
  const [base, before] = map instanceof PatchedMap ? (map as PatchedMap<K, V>).parts() : [map, undefined];
  if (changes.size + (before?.size ?? 0) > Math.max(LEAST_PATCH, Math.sqrt(base.size))) {
    const copy = new Map(base);
    for (const changed of [before ?? [], changes])
      for (const [key, value] of changed)
        if (value === undefined) copy.delete(key);
        else copy.set(key, value);
    return copy;
  }
  const patch = new Map<K, V | undefined>(before);
  for (const [key, value] of changes)
    if (value === undefined && !base.has(key)) patch.delete(key);
    else patch.set(key, value);
  return new PatchedMap(base, patch);
}

class PatchedMap<K, V> implements ReadonlyMap<K, V> {
  readonly #base: ReadonlyMap<K, V>;
  readonly #patch: ReadonlyMap<K, V | undefined>;
  readonly size: number;

  constructor(base: ReadonlyMap<K, V>, patch: ReadonlyMap<K, V | undefined>) {
    this.#base = base;
    this.#patch = patch;
    let { size } = base;
    for (const [key, value] of patch) size += Number(value !== undefined) - Number(base.has(key));
    this.size = size;
  }

  parts(): readonly [ReadonlyMap<K, V>, ReadonlyMap<K, V | undefined>] {
    return [this.#base, this.#patch];
  }

  get(key: K): V | undefined {
    return this.#patch.has(key) ? this.#patch.get(key) : this.#base.get(key);
  }

  has(key: K): boolean {
    return this.get(key) !== undefined;
  }

  *entries(): Generator<[K, V], undefined> {
    for (const entry of this.#base) if (!this.#patch.has(entry[0])) yield entry;
    for (const [key, value] of this.#patch) if (value !== undefined) yield [key, value];
  }

  *keys(): Generator<K, undefined> {
    for (const [key] of this.entries()) yield key;
  }

  *values(): Generator<V, undefined> {
    for (const [, value] of this.entries()) yield value;
  }

  [Symbol.iterator](): Generator<[K, V], undefined> {
    return this.entries();
  }

  forEach(visit: (value: V, key: K, map: ReadonlyMap<K, V>) => void): void {
    for (const [key, value] of this.entries()) visit(value, key, this);
  }
}
