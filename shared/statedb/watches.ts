/** Which watches of a table a commit fires: exactly those whose answers it changes. */

import type { Tree } from './branch.ts';
import type { Entry } from './entry.ts';
import type { Index, Root } from './indexes.ts';
import { afterPrefix } from './keys.ts';
import { covered, covering, longest, putPrefix, removePrefix, type Trie } from './trie.ts';
import type { Key, Query } from './types.ts';
import type { View } from './view.ts';
import { Pulse, type WatchNode, WatchRegistry } from './watch.ts';

/** A row before and after a commit. */
export interface RowChange<T> {
  readonly key: Key;
  readonly old: T | undefined;
  readonly now: T | undefined;
}

interface Range {
  readonly from: Key;
  readonly to: Key | undefined;
}

/** Watches on exact keys and on ranges of them. */
export class KeyWatches {
  readonly #keys = new WatchRegistry<Key>();
  readonly #ranges = new WatchRegistry<Range>();

  get size(): number {
    return this.#keys.size + this.#ranges.size;
  }

  key(key: Key): WatchNode {
    return this.#keys.ask(key, key);
  }

  range(from: Key, to: Key | undefined): WatchNode {
    return this.#ranges.ask(JSON.stringify([from, to]), { from, to });
  }

  collect(changed: readonly Key[], fire: WatchNode[]): void {
    if (this.#keys.size > 0) {
      for (const key of changed) {
        const node = this.#keys.get(key);
        if (node !== undefined) fire.push(node);
      }
    }
    if (this.#ranges.size === 0) return;
    const sorted = changed.toSorted((a, b) => (a < b ? -1 : 1));
    for (const [{ from, to }, node] of this.#ranges) {
      const hit = sorted[lowerBound(sorted, from)];
      if (hit !== undefined && (to === undefined || hit < to)) fire.push(node);
    }
  }
}

function lowerBound(sorted: readonly Key[], from: Key): number {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((sorted[middle] as Key) < from) low = middle + 1;
    else high = middle;
  }
  return low;
}

type Kind = 'list' | 'lookup' | 'covering' | 'covered';
const KINDS: readonly Kind[] = ['list', 'lookup', 'covering', 'covered'];

function isKind(kind: string): kind is Kind {
  return (KINDS as readonly string[]).includes(kind);
}

/** Watches by prefix: for each kind of query the prefixes that are asked for, found by containment. */
class Asked extends WatchRegistry<Key> {
  prefixes: Trie<WeakRef<WatchNode>> | undefined;

  override ask(id: string, key: Key): WatchNode {
    const node = super.ask(id, key);
    this.prefixes = putPrefix(this.prefixes, key, new WeakRef(node), 0);
    return node;
  }

  override forget(id: string): void {
    super.forget(id);
    this.prefixes = removePrefix(this.prefixes, id, 0);
  }
}

export class PrefixWatches<T> {
  readonly #asked: Readonly<Record<Kind, Asked>> = {
    list: new Asked(),
    lookup: new Asked(),
    covering: new Asked(),
    covered: new Asked(),
  };

  get size(): number {
    return KINDS.reduce((sum, kind) => sum + this.#asked[kind].size, 0);
  }

  ask(query: Query<T>): WatchNode {
    if (!('key' in query) || !isKind(query.kind)) throw new Error(`an index of prefixes cannot answer "${query.kind}"`);
    return this.#asked[query.kind].ask(query.key, query.key);
  }

  collect(changed: readonly Key[], before: Root<T>, after: Root<T>, fire: WatchNode[]): void {
    const tries = [before, after] as (Trie<Tree<Entry<T>>> | undefined)[];
    const { list, lookup, covering: above, covered: below } = this.#asked;
    for (const key of changed) {
      add(list.get(key), fire);
      for (const { value } of covered(above.prefixes, key)) add(value.deref(), fire);
      for (const { value } of covering(below.prefixes, key)) add(value.deref(), fire);
      for (const asked of covered(lookup.prefixes, key)) {
        // The change shows only when no longer prefix hides it.
        if (tries.some((trie) => longest(trie, asked.key)?.key === key)) add(asked.value.deref(), fire);
      }
    }
  }
}

function add(node: WatchNode | undefined, fire: WatchNode[]): void {
  if (node !== undefined) fire.push(node);
}

export class TableWatches<T> {
  /** Fires when streams have something to read. */
  readonly moved = new Pulse();
  /** Fires when any row changes. */
  readonly all = new Pulse();
  readonly initialised = new Pulse();
  readonly primary = new KeyWatches();
  readonly #indexes: { readonly index: Index<T>; readonly watches: KeyWatches | PrefixWatches<T> }[] = [];

  /** Watches on rows, which need to know which of them changed. */
  get size(): number {
    let size = this.primary.size + (this.all.asked === undefined ? 0 : 1);
    for (const { watches } of this.#indexes) size += watches.size;
    return size;
  }

  addIndex(index: Index<T>): void {
    this.#indexes.push({ index, watches: index.lpm ? new PrefixWatches<T>() : new KeyWatches() });
  }

  collect(changed: readonly RowChange<T>[], before: View<T>, after: View<T>, fire: WatchNode[]): void {
    // Also when a row came and went within the transaction: streams still have to pass the revisions that took.
    if (after.revision !== before.revision) add(this.moved.asked, fire);
    if (before.pending.length > 0 && after.pending.length === 0) add(this.initialised.asked, fire);
    if (changed.length === 0) return;
    add(this.all.asked, fire);
    if (this.primary.size > 0) {
      this.primary.collect(
        changed.map(({ key }) => key),
        fire,
      );
    }
    this.#indexes.forEach(({ index, watches }, number) => {
      if (watches.size === 0) return;
      const keys = new Set<Key>();
      for (const { old, now } of changed) {
        if (old !== undefined) for (const key of index.keysOf(old)) keys.add(key);
        if (now !== undefined) for (const key of index.keysOf(now)) keys.add(key);
      }
      if (watches instanceof KeyWatches) watches.collect([...keys], fire);
      else watches.collect([...keys], before.indexes[number], after.indexes[number], fire);
    });
  }

  /** The watch on a query's answer as it is committed now; `number` is that of the index it asks, if it does. */
  ask(query: Query<T>, number: number | undefined): WatchNode {
    if (query.kind === 'all') return this.all.node;
    const own = number === undefined ? this.primary : this.#watchesOf(number);
    if (own instanceof PrefixWatches) return own.ask(query);
    switch (query.kind) {
      case 'prefix':
        return own.range(query.key, afterPrefix(query.key));
      case 'range':
        return own.range(query.from, query.to);
      default:
        return own.key(query.key);
    }
  }

  #watchesOf(number: number): KeyWatches | PrefixWatches<T> {
    return (this.#indexes[number] as { readonly watches: KeyWatches | PrefixWatches<T> }).watches;
  }
}
