/**
 * An index of prefixes, found by longest match: an exact index that is asked once for each prefix length in use (at most
 * 33 for IPv4, 129 for IPv6), longest first. Chosen over a radix tree because lengths in use are few and a snapshot then
 * needs nothing beyond what an exact index has.
 */
import { InvalidKeyError } from './errors.ts';
import type { Generation, History } from './history.ts';
import { VersionedMap } from './history.ts';
import type { Posting } from './index-exact.ts';
import { ExactIndex, primaries } from './index-exact.ts';
import { parsePrefix, truncatePrefix } from './keys.ts';
import { SortedList } from './sorted-list.ts';
import type { Key } from './types.ts';
import { WatchRegistry } from './watch.ts';

/** Postings that know which prefix lengths exist now, and which ever did (for the eyes of older snapshots). */
class LpmPostings extends VersionedMap<Posting> {
  readonly #now = new Map<number, number>();
  readonly #ever = new Map<number, Set<number>>();

  protected override membership(key: Key, present: boolean): void {
    const { size, bits } = parsePrefix(key);
    const shape = size * 1024 + bits;
    this.#now.set(shape, (this.#now.get(shape) ?? 0) + (present ? 1 : -1));
    const ever = this.#ever.get(size);
    if (ever === undefined) this.#ever.set(size, new Set([bits]));
    else ever.add(bits);
  }

  /** The stored prefix that contains `key` and is the longest. */
  longest(key: Key, at?: Generation): Key | undefined {
    const { size, bits } = parsePrefix(key);
    const ever = this.#ever.get(size);
    if (ever === undefined) return undefined;
    for (let length = bits; length >= 0; length--) {
      if (!ever.has(length) || (at === undefined && this.#now.get(size * 1024 + length) === 0)) continue;
      const candidate = length === bits ? key : truncatePrefix(key, size, length);
      if (this.get(candidate, at) !== undefined) return candidate;
    }
    return undefined;
  }
}

/** Watches of queries, which can be asked for those within a prefix. */
class PrefixWatches extends WatchRegistry {
  #queries = SortedList.empty;
  readonly #pending = new Map<Key, boolean>();

  override node(key: Key): ReturnType<WatchRegistry['node']> {
    this.#pending.set(key, true);
    return super.node(key);
  }

  protected override forget(key: Key): void {
    super.forget(key);
    this.#pending.set(key, false);
  }

  within(prefix: Key): Key[] {
    this.#queries = this.#queries.with(this.#pending);
    this.#pending.clear();
    const { size, bits } = parsePrefix(prefix);
    const found: Key[] = [];
    for (const query of this.#queries.iterate(prefix)) {
      const shape = parsePrefix(query);
      if (shape.size !== size || truncatePrefix(query, size, Math.min(bits, size * 8)) !== prefix) break;
      if (shape.bits >= bits) found.push(query);
    }
    return found;
  }
}

export class LpmIndex<T> extends ExactIndex<T> {
  declare readonly postings: LpmPostings;
  override readonly watches: PrefixWatches = new PrefixWatches();

  override find(key: Key, at?: Generation): Iterable<Key> {
    const longest = this.postings.longest(key, at);
    return longest === undefined ? [] : primaries(this.postings.get(longest, at));
  }

  /** A change of a prefix shorter than the present answer leaves that answer as it is: its watch stays. */
  override fire(keys: Iterable<Key>, callbacks: (() => void)[]): void {
    for (const key of keys) {
      const { bits } = parsePrefix(key);
      for (const query of this.watches.within(key)) {
        const answer = this.postings.longest(query);
        if (answer !== undefined && parsePrefix(answer).bits > bits) continue;
        this.watches.fire(query, callbacks);
      }
    }
  }

  protected override createPostings(history: History): LpmPostings {
    return new LpmPostings(history);
  }

  protected override validate(key: Key): void {
    super.validate(key);
    const { size, bits } = parsePrefix(key);
    if (truncatePrefix(key, size, bits) !== key) {
      throw new InvalidKeyError(
        `table "${this.table}": index "${this.spec.name}" gave a prefix key with bits set beyond its length ${bits}; use keys.prefix`,
      );
    }
  }
}
