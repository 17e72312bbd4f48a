/**
 * How one set of mutable maps gives many immutable views.
 *
 * A generation is the committed state at one instant. It holds no copy: the first change of an entry after that instant
 * saves the entry's old value in the newest generation. A reader of a generation looks for the entry in that generation,
 * then in each newer one, then in the map itself. So a snapshot costs O(1), a map without live snapshots carries no
 * history at all, and a version lives only while a generation that can see it does: releasing a generation moves what it
 * saved to the next older one (the smaller map into the larger), or drops it when there is none.
 * A write transaction holds the generation it started from; to abort is to put its saved values back.
 */
import { SortedList } from './sorted-list.ts';
import type { Key } from './types.ts';

type AnyMap = VersionedMap<unknown>;

/** Merged entries are looked through for what came and went up to this many; beyond, the pause would be long. */
const SWEEP = 4096;

export class Generation {
  refs = 0;
  older: Generation | undefined;
  newer: Generation | undefined;
  readonly saved = new Map<AnyMap, Map<Key, unknown>>();
  /** Sorted keys of maps as this generation sees them. Right for ever, since a generation never changes. */
  readonly lists = new Map<AnyMap, SortedList>();
}

export class History {
  #newest: Generation | undefined;
  #live = 0;

  /** Generations that someone holds. */
  get live(): number {
    return this.#live;
  }

  get newest(): Generation | undefined {
    return this.#newest;
  }

  /** Saved values in all live generations. */
  get saved(): number {
    let total = 0;
    for (let g = this.#newest; g !== undefined; g = g.older) for (const map of g.saved.values()) total += map.size;
    return total;
  }

  /** Holds the present state. Not to be called while a transaction has changed anything: hold its generation then. */
  acquire(): Generation {
    let generation = this.#newest;
    if (generation === undefined || generation.saved.size > 0) {
      generation = new Generation();
      generation.older = this.#newest;
      if (this.#newest !== undefined) this.#newest.newer = generation;
      this.#newest = generation;
      this.#live++;
    }
    generation.refs++;
    return generation;
  }

  release(generation: Generation): void {
    if (--generation.refs > 0) return;
    const { older, newer } = generation;
    if (older !== undefined) {
      older.newer = newer;
      for (const [map, entries] of generation.saved) mergeInto(older, map, entries);
    }
    if (newer !== undefined) newer.older = older;
    else this.#newest = older;
    generation.saved.clear();
    generation.lists.clear();
    this.#live--;
  }
}

/**
 * Entries that the older generation already saved are older still: they win. What came and went since is not kept, so a
 * snapshot held for long does not collect the keys of all that churns meanwhile.
 */
function mergeInto(older: Generation, map: AnyMap, entries: Map<Key, unknown>): void {
  const own = older.saved.get(map);
  const [into, from] = own === undefined || own.size < entries.size ? [entries, own] : [own, entries];
  for (const [key, value] of from ?? []) if (into === entries || !into.has(key)) into.set(key, value);
  older.saved.set(map, into);
  const merged = from === entries ? entries.keys() : into.size <= SWEEP ? [...into.keys()] : [];
  for (const key of merged) if (map.get(key, older.newer) === into.get(key)) into.delete(key);
}

/**
 * A map whose past is kept for live generations. Its sorted list of keys is built on the first ordered read and then
 * brought up to date by the keys touched since, so users that never ask for order never pay for it.
 */
export class VersionedMap<V> {
  readonly #history: History;
  readonly #current = new Map<Key, V>();
  #list: SortedList | undefined;
  readonly #touched = new Set<Key>();

  constructor(history: History) {
    this.#history = history;
  }

  get size(): number {
    return this.#current.size;
  }

  /** The entry as `at` sees it; as it is now when `at` is undefined. */
  get(key: Key, at?: Generation): V | undefined {
    for (let g = at; g !== undefined; g = g.newer) {
      const saved = g.saved.get(this as AnyMap);
      if (saved === undefined) continue;
      const value = saved.get(key);
      if (value !== undefined || saved.has(key)) return value as V | undefined;
    }
    return this.#current.get(key);
  }

  /** Sets the entry, or removes it when `value` is undefined. Only inside a transaction. */
  set(key: Key, value: V | undefined): void {
    const generation = this.#history.newest;
    if (generation !== undefined) {
      let saved = generation.saved.get(this as AnyMap);
      if (saved === undefined) {
        saved = new Map();
        generation.saved.set(this as AnyMap, saved);
      }
      if (!saved.has(key)) saved.set(key, this.#current.get(key));
    }
    this.#put(key, value);
  }

  /** Entries changed since `base`, the generation of the running transaction, with their values there. */
  changedSince(base: Generation): ReadonlyMap<Key, V | undefined> {
    return (base.saved.get(this as AnyMap) as Map<Key, V | undefined> | undefined) ?? new Map();
  }

  /** Puts back what the running transaction changed. */
  restore(key: Key, value: unknown): void {
    this.#put(key, value as V | undefined);
  }

  /** The keys in order, as `at` sees them. The list never changes. */
  ordered(at?: Generation): SortedList {
    const now = this.#sorted();
    if (at === undefined) return now;
    const known = at.lists.get(this as AnyMap);
    if (known !== undefined) return known;
    const present = new Map<Key, boolean>();
    for (let g: Generation | undefined = at; g !== undefined; g = g.newer) {
      for (const [key, value] of g.saved.get(this as AnyMap) ?? []) {
        if (!present.has(key)) present.set(key, value !== undefined);
      }
    }
    for (const [key, was] of present) if (was === this.#current.has(key)) present.delete(key);
    const list = now.with(present);
    at.lists.set(this as AnyMap, list);
    return list;
  }

  /** Called when a key appears or disappears. */
  protected membership(_key: Key, _present: boolean): void {}

  #put(key: Key, value: V | undefined): void {
    const had = this.#current.has(key);
    if (value === undefined) this.#current.delete(key);
    else this.#current.set(key, value);
    if (had === (value !== undefined)) return;
    this.membership(key, !had);
    if (this.#list === undefined) return;
    this.#touched.add(key);
    // Nobody reads in order: sorting anew is cheaper than remembering every key that came and went.
    if (this.#touched.size > this.#current.size + 1024) {
      this.#list = undefined;
      this.#touched.clear();
    }
  }

  #sorted(): SortedList {
    if (this.#list === undefined) {
      this.#list = SortedList.from(this.#current.keys());
    } else if (this.#touched.size > 0) {
      const present = new Map<Key, boolean>();
      for (const key of this.#touched) present.set(key, this.#current.has(key));
      this.#list = this.#list.with(present);
    }
    this.#touched.clear();
    return this.#list;
  }
}

/** Puts every map back to `base`, the generation of the running transaction. */
export function rollback(base: Generation): void {
  for (const [map, entries] of base.saved) for (const [key, value] of entries) map.restore(key, value);
  base.saved.clear();
}
