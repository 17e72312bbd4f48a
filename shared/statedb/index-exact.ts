/** A secondary index: key -> the primary keys of its rows, in order. Lives in versioned maps, so snapshots see it too. */
import { InvalidKeyError, UniqueIndexError } from './errors.ts';
import type { Generation, History } from './history.ts';
import { VersionedMap } from './history.ts';
import { SortedList } from './sorted-list.ts';
import type { IndexSpec, Key } from './types.ts';
import { WatchRegistry } from './watch.ts';

/** Primary keys of one index key. Most have one row: that one is kept without a list. */
export type Posting = Key | SortedList;

const NONE: readonly Key[] = [];

export class ExactIndex<T> {
  readonly table: string;
  readonly spec: IndexSpec<T>;
  readonly postings: VersionedMap<Posting>;
  readonly watches: WatchRegistry = new WatchRegistry();
  /** Some row had more than one key here: a scan over keys may meet a row twice. */
  multi = false;

  constructor(table: string, spec: IndexSpec<T>, history: History) {
    this.table = table;
    this.spec = spec;
    this.postings = this.createPostings(history);
  }

  /** The distinct keys of a row. Throws what the spec's function throws, or `InvalidKeyError`. */
  keysOf(row: T): readonly Key[] {
    const keys = this.spec.keys(row);
    if (typeof keys === 'string') {
      throw new InvalidKeyError(
        `table "${this.table}": keys() of index "${this.spec.name}" returned a string; return a list of keys: [key]`,
      );
    }
    const distinct = [...new Set(keys)];
    for (const key of distinct) this.validate(key);
    return distinct;
  }

  /** Throws `UniqueIndexError` when another row holds one of the keys. Changes nothing. */
  check(primary: Key, keys: readonly Key[]): void {
    if (this.spec.unique !== true) return;
    for (const key of keys) {
      const holder = this.postings.get(key);
      if (typeof holder === 'string' && holder !== primary) {
        throw new UniqueIndexError(this.table, this.spec.name, key, holder, primary);
      }
    }
  }

  /** Moves a row from its old keys to its new ones. */
  move(primary: Key, from: readonly Key[], to: readonly Key[]): void {
    if (to.length > 1) this.multi = true;
    for (const key of from) if (!to.includes(key)) this.postings.set(key, without(this.postings.get(key), primary));
    for (const key of to) if (!from.includes(key)) this.postings.set(key, including(this.postings.get(key), primary));
  }

  /** The primary keys that `find(key)` answers with. */
  find(key: Key, at?: Generation): Iterable<Key> {
    return primaries(this.postings.get(key, at));
  }

  /** Fires the watches whose answer a change at these keys changes. */
  fire(keys: Iterable<Key>, callbacks: (() => void)[]): void {
    for (const key of keys) this.watches.fire(key, callbacks);
  }

  protected createPostings(history: History): VersionedMap<Posting> {
    return new VersionedMap<Posting>(history);
  }

  protected validate(key: Key): void {
    if (typeof key !== 'string') {
      throw new InvalidKeyError(
        `table "${this.table}": index "${this.spec.name}" gave a key of type ${typeof key}; keys are strings (see keys.*)`,
      );
    }
  }
}

export function primaries(posting: Posting | undefined): Iterable<Key> {
  if (posting === undefined) return NONE;
  return typeof posting === 'string' ? [posting] : posting.iterate();
}

function including(posting: Posting | undefined, primary: Key): Posting {
  if (posting === undefined) return primary;
  const list = typeof posting === 'string' ? SortedList.from([posting]) : posting;
  return list.withKey(primary);
}

function without(posting: Posting | undefined, primary: Key): Posting | undefined {
  if (posting === undefined || typeof posting === 'string') return undefined;
  const list = posting.withoutKey(primary);
  if (list.size > 1) return list;
  for (const only of list.iterate()) return only;
  return undefined;
}
