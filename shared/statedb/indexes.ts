/** Secondary indexes: trees and tries whose leaves hold the entries that share a key. */

import type { Tree } from './branch.ts';
import type { Entry } from './entry.ts';
import { InvalidTableSpecError, KeyFunctionError, MutatedRowError, UniqueIndexError } from './errors.ts';
import { parsePrefix } from './keys.ts';
import { find, first, put, remove } from './tree.ts';
import { findPrefix, putPrefix, removePrefix, type Trie } from './trie.ts';
import type { IndexSpec, Key } from './types.ts';

/** The entries that share one key of an index, by primary key. */
export class Posting<T> {
  readonly at = -1;
  readonly key: Key;
  readonly entries: Tree<Entry<T>>;

  constructor(key: Key, entries: Tree<Entry<T>>) {
    this.key = key;
    this.entries = entries;
  }
}

/** An index's content at one instant. */
export type Root<T> = Tree<Posting<T>> | Trie<Tree<Entry<T>>> | undefined;

const NO_KEYS: readonly Key[] = [];

/** How an index's content is read and changed. It holds nothing itself. */
export class Index<T> {
  readonly spec: IndexSpec<T>;
  readonly lpm: boolean;
  readonly #table: string;

  constructor(table: string, spec: IndexSpec<T>) {
    this.#table = table;
    this.spec = spec;
    this.lpm = spec.kind === 'lpm';
    if (typeof spec.name !== 'string' || spec.name === '' || typeof spec.keys !== 'function') {
      throw new InvalidTableSpecError(table, `index "${String(spec.name)}" needs a name and a function \`keys\``);
    }
    if (spec.kind !== undefined && spec.kind !== 'exact' && spec.kind !== 'lpm') {
      throw new InvalidTableSpecError(
        table,
        `index "${spec.name}" is of kind "${String(spec.kind)}"; use exact or lpm`,
      );
    }
  }

  /** The row's keys, each once. Throws `KeyFunctionError`, and `InvalidKeyError` for what is no prefix in an `lpm` index. */
  keysOf(row: T): readonly Key[] {
    const keys = this.#call(row);
    if (keys.length === 0) return NO_KEYS;
    for (const key of keys) {
      if (typeof key !== 'string') throw new KeyFunctionError(this.#table, this.spec.name, 'a key', key);
      if (this.lpm) parsePrefix(key);
    }
    return keys.length === 1 ? keys : [...new Set(keys)];
  }

  #call(row: T): readonly Key[] {
    let keys: unknown;
    try {
      keys = this.spec.keys(row);
      if (Array.isArray(keys)) return keys;
      if (typeof keys === 'object' && keys !== null && Symbol.iterator in keys) return [...(keys as Iterable<Key>)];
    } catch (error) {
      throw new KeyFunctionError(this.#table, this.spec.name, 'keys', undefined, error);
    }
    throw new KeyFunctionError(this.#table, this.spec.name, 'keys', keys);
  }

  find(root: Root<T>, key: Key): Tree<Entry<T>> | undefined {
    if (this.lpm) return findPrefix(root as Trie<Tree<Entry<T>>> | undefined, key);
    return find(root as Tree<Posting<T>> | undefined, key)?.entries;
  }

  /** Throws `UniqueIndexError` when another row has one of the keys. */
  check(root: Root<T>, primary: Key, keys: readonly Key[]): void {
    if (this.spec.unique !== true) return;
    for (const key of keys) {
      const there = this.find(root, key);
      if (there === undefined) continue;
      const holder = first(there).key;
      if (holder !== primary) throw new UniqueIndexError(this.#table, this.spec.name, key, holder, primary);
    }
  }

  /** Throws `MutatedRowError` when the index does not know the row under the keys it now says it has. */
  checkUnchanged(root: Root<T>, entry: Entry<T>, keys: readonly Key[]): void {
    for (const key of keys) {
      const there = this.find(root, key);
      if (there === undefined || find(there, entry.key) !== entry) {
        throw new MutatedRowError(this.#table, this.spec.name, entry.key);
      }
    }
  }

  add(root: Root<T>, key: Key, entry: Entry<T>, edit: number): Root<T> {
    return this.#set(root, key, put(this.find(root, key), entry, edit), edit);
  }

  drop(root: Root<T>, key: Key, primary: Key, edit: number): Root<T> {
    const left = remove(this.find(root, key), primary, edit);
    if (left !== undefined) return this.#set(root, key, left, edit);
    if (this.lpm) return removePrefix(root as Trie<Tree<Entry<T>>> | undefined, key, edit);
    return remove(root as Tree<Posting<T>> | undefined, key, edit);
  }

  #set(root: Root<T>, key: Key, entries: Tree<Entry<T>>, edit: number): Root<T> {
    if (this.lpm) return putPrefix(root as Trie<Tree<Entry<T>>> | undefined, key, entries, edit);
    return put(root as Tree<Posting<T>> | undefined, new Posting(key, entries), edit);
  }
}
