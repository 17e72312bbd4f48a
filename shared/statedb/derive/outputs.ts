/**
 * The rows that the units of a derivation put out, and whose row stands under each key: the unit with the smallest
 * driving key that has one. Writes what differs.
 */
import { UniqueIndexError } from '../errors.ts';
import type { Key, Table, WriteTxn } from '../types.ts';

/** The part of a unit that matters here. */
export interface Source<Out> {
  readonly key: Key;
  /** Its rows by their keys in the derived table. */
  outputs: ReadonlyMap<Key, Out>;
}

/** A row that the derived table would not take. */
export interface Refusal {
  /** The driving key. */
  readonly key: Key;
  readonly error: unknown;
}

export class Outputs<Out> {
  readonly #into: Table<Out>;
  readonly #equals: ((a: Out, b: Out) => boolean) | undefined;
  /** By output key: the units that have a row there, by driving key. */
  readonly #sources = new Map<Key, Source<Out>[]>();
  /** Output keys whose row may differ from what is in the table. */
  readonly #touched = new Set<Key>();
  #refused = new Map<Key, Refusal>();

  constructor(into: Table<Out>, equals: ((a: Out, b: Out) => boolean) | undefined) {
    this.#into = into;
    this.#equals = equals;
  }

  /** By output key. */
  get refused(): ReadonlyMap<Key, Refusal> {
    return this.#refused;
  }

  get pending(): boolean {
    return this.#touched.size > 0;
  }

  /** Looks at this key, too, at the next `write`. */
  touch(key: Key): void {
    this.#touched.add(key);
  }

  /** Replaces a unit's rows. */
  set(source: Source<Out>, outputs: ReadonlyMap<Key, Out>): void {
    for (const key of source.outputs.keys()) {
      this.#touched.add(key);
      if (!outputs.has(key)) this.#leave(key, source);
    }
    for (const key of outputs.keys()) {
      this.#touched.add(key);
      if (!source.outputs.has(key)) this.#enter(key, source);
    }
    source.outputs = outputs;
  }

  /**
   * Brings the table up to date in a transaction. Deletes first, and a row that meets another's unique key is tried
   * again once every such row is gone, so that rows can swap their unique keys. A row refused is left for the next time;
   * what was there stays if it can.
   */
  write(txn: WriteTxn): ReadonlyMap<Key, Refusal> {
    const refused = new Map<Key, Refusal>();
    const upserts: Key[] = [];
    for (const key of this.#refused.keys()) this.#touched.add(key);
    for (const key of this.#touched) {
      if (this.#sources.has(key)) upserts.push(key);
      else txn.delete(this.#into, key);
    }
    const collided: Key[] = [];
    for (const key of upserts) {
      this.#put(txn, key, (error, source) => {
        if (error instanceof UniqueIndexError) collided.push(key);
        else refused.set(key, { key: source.key, error });
      });
    }
    const there = new Map(collided.map((key) => [key, txn.delete(this.#into, key)]));
    const again: Key[] = [];
    for (const key of collided) {
      this.#put(txn, key, (error, source) => {
        refused.set(key, { key: source.key, error });
        again.push(key);
      });
    }
    for (const key of again) {
      const row = there.get(key);
      if (row !== undefined) attempt(() => txn.upsert(this.#into, row));
    }
    return refused;
  }

  /** What `write` did is committed. */
  written(refused: ReadonlyMap<Key, Refusal>): void {
    this.#touched.clear();
    this.#refused = new Map(refused);
  }

  #put(txn: WriteTxn, key: Key, failed: (error: unknown, source: Source<Out>) => void): void {
    const source = this.#sources.get(key)?.[0];
    const row = source?.outputs.get(key);
    if (source === undefined || row === undefined) return;
    const error = attempt(() => {
      const there = txn.get(this.#into, key);
      if (there === undefined || this.#equals?.(there, row) !== true) txn.upsert(this.#into, row);
    });
    if (error !== undefined) failed(error.cause, source);
  }

  #enter(key: Key, source: Source<Out>): void {
    const there = this.#sources.get(key);
    if (there === undefined) {
      this.#sources.set(key, [source]);
      return;
    }
    there.splice(placeOf(there, source.key), 0, source);
  }

  #leave(key: Key, source: Source<Out>): void {
    const there = this.#sources.get(key);
    if (there === undefined) return;
    if (there.length === 1) this.#sources.delete(key);
    else there.splice(placeOf(there, source.key), 1);
  }
}

/** Where the unit of this driving key is, or belongs. */
function placeOf(sources: readonly { readonly key: Key }[], key: Key): number {
  let low = 0;
  let high = sources.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if ((sources[middle]?.key ?? key) < key) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** What the action threw. */
function attempt(action: () => void): { readonly cause: unknown } | undefined {
  try {
    action();
    return undefined;
  } catch (cause) {
    return { cause };
  }
}
