/** The read operations. */

import type { Tree } from './branch.ts';
import { Entry } from './entry.ts';
import { InvalidKeyError, InvalidTableSpecError, SnapshotDisposedError } from './errors.ts';
import type { Posting, Root } from './indexes.ts';
import { storeOf, type TableStore } from './table.ts';
import { Cursor, find, under, type Visitor, walk } from './tree.ts';
import { covered, covering, longest, type Trie } from './trie.ts';
import type { Answer, Key, Query, Revision, Snapshot, Table, Versioned } from './types.ts';
import { type Edits, EMPTY, type View } from './view.ts';
import type { Views } from './views.ts';
import { WatchNode } from './watch.ts';

/** What a snapshot tells its StateDB. */
export interface SnapshotOwner {
  readonly edits: Edits;
  /** The content of all tables after the last commit. */
  readonly views: Views<View<unknown>>;
}

/** What is released when a snapshot is disposed. */
export interface Held {
  release(): void;
}

/** The number of snapshots that are not disposed. */
export class OpenSnapshots implements Held {
  count = 0;

  release(): void {
    this.count--;
  }
}

/**
 * Reads what every table held at one instant. Transactions override what is seen; that they derive from snapshots, and not
 * both from a base, lets V8 do without the allocation of a snapshot that does not leave its function (1 ns against 14).
 */
export class SnapshotReader implements Snapshot {
  readonly #db: SnapshotOwner;
  readonly #held: Held | undefined;
  #views: Views<View<unknown>> | undefined;

  constructor(db: SnapshotOwner, held?: Held) {
    this.#db = db;
    this.#held = held;
    this.#views = db.views;
  }

  [Symbol.dispose](): void {
    if (this.#views === undefined) return;
    this.#views = undefined;
    this.#held?.release();
  }

  watch<T>(query: Query<T>): Answer<T> {
    const rows = [...this.select(query)];
    const store = this.storeOf(query.table);
    if (this.view(store).revision !== store.committed.revision) {
      const current = [...new SnapshotReader(this.#db).select(query)];
      if (current.length !== rows.length || current.some((row, i) => row !== rows[i])) {
        return { rows, watch: new WatchNode(true) };
      }
    }
    const index = 'index' in query ? query.index : undefined;
    return { rows, watch: store.watches.ask(query, index === undefined ? undefined : store.indexNumber(index)) };
  }

  /** Throws when this reader is no longer valid. */
  check(): void {
    if (this.#views === undefined) throw new SnapshotDisposedError();
  }

  /** Throws `UnknownTableError` for a table of another StateDB. */
  protected storeOf<T>(table: Table<T>): TableStore<T> {
    return storeOf(table, this.#db.edits);
  }

  /** What this reader sees of a table; throws when it is no longer valid. */
  protected view<T>(store: TableStore<T>): View<T> {
    const views = this.#views;
    if (views === undefined) throw new SnapshotDisposedError();
    return (views.get(store.number) ?? EMPTY) as View<T>;
  }

  /** The same, for what is read on while others write. */
  protected stableView<T>(store: TableStore<T>): View<T> {
    return this.view(store);
  }

  get<T>(table: Table<T>, key: Key): T | undefined {
    return find(this.view(this.storeOf(table)).rows, key)?.row;
  }

  getVersioned<T>(table: Table<T>, key: Key): Versioned<T> | undefined {
    return find(this.view(this.storeOf(table)).rows, key);
  }

  has<T>(table: Table<T>, key: Key): boolean {
    return find(this.view(this.storeOf(table)).rows, key) !== undefined;
  }

  count<T>(table: Table<T>): number {
    return this.view(this.storeOf(table)).count;
  }

  revision<T>(table: Table<T>): Revision {
    return this.view(this.storeOf(table)).revision;
  }

  initialised<T>(table: Table<T>): boolean {
    return this.view(this.storeOf(table)).pending.length === 0;
  }

  all<T>(table: Table<T>): IterableIterator<T> {
    return this.#entries(this.stableView(this.storeOf(table)).rows);
  }

  list<T>(table: Table<T>, index: string, key: Key): IterableIterator<T> {
    return this.#entries(this.#listed(table, index, key));
  }

  prefix<T>(table: Table<T>, prefix: Key, index?: string): IterableIterator<T> {
    const store = this.storeOf(table);
    const view = this.stableView(store);
    if (index === undefined) return this.#rows(Cursor.prefix(view.rows, checked(prefix)));
    return this.#each(entriesOf(Cursor.prefix(ordered(store, view, index), checked(prefix)), undefined));
  }

  lowerBound<T>(table: Table<T>, from: Key, index?: string): IterableIterator<T> {
    return this.range(table, from, undefined, index);
  }

  range<T>(table: Table<T>, from: Key, to: Key | undefined, index?: string): IterableIterator<T> {
    const store = this.storeOf(table);
    const view = this.stableView(store);
    if (to !== undefined) checked(to);
    if (index === undefined) {
      const cursor = Cursor.from(view.rows, checked(from));
      return to === undefined ? this.#rows(cursor) : this.#rowsUntil(cursor, to);
    }
    return this.#each(entriesOf(Cursor.from(ordered(store, view, index), checked(from)), to));
  }

  lookup<T>(table: Table<T>, index: string, key: Key): IterableIterator<T> {
    return this.#entries(longest(this.#prefixes(table, index), checked(key))?.value);
  }

  covering<T>(table: Table<T>, index: string, key: Key): IterableIterator<T> {
    return this.#each(valuesOf(covering(this.#prefixes(table, index), checked(key))));
  }

  covered<T>(table: Table<T>, index: string, key: Key): IterableIterator<T> {
    return this.#each(valuesOf(covered(this.#prefixes(table, index), checked(key))));
  }

  select<T>(query: Query<T>): IterableIterator<T> {
    const { table } = query;
    switch (query.kind) {
      case 'all':
        return this.all(table);
      case 'get':
        return this.#entries(find(this.view(this.storeOf(table)).rows, query.key));
      case 'prefix':
        return this.prefix(table, query.key, query.index);
      case 'range':
        return this.range(table, query.from, query.to, query.index);
      default:
        return this[query.kind](table, query.index, query.key);
    }
  }

  visit<T>(query: Query<T>, visitor: (row: T) => false | undefined): void {
    // As an iterator does that is asked for more when there is none.
    if (this.#show(query, visitor)) this.check();
  }

  /** Returns false when the visitor did. */
  #show<T>(query: Query<T>, visitor: (row: T) => false | undefined): boolean {
    const { kind, table } = query;
    if (kind === 'all') return walk(this.stableView(this.storeOf(table)).rows, new Visit(this, visitor));
    if (kind === 'list') return walk(this.#listed(table, query.index, query.key), new Visit(this, visitor));
    if (kind !== 'prefix') {
      for (const row of this.select(query)) if (visitor(row) === false) return false;
      return true;
    }
    const store = this.storeOf(table);
    const view = this.stableView(store);
    if (query.index === undefined) return walk(under(view.rows, checked(query.key)), new Visit(this, visitor));
    const postings = under(ordered(store, view, query.index), checked(query.key));
    return walk(postings, new VisitOnce(this, visitor));
  }

  #listed<T>(table: Table<T>, index: string, key: Key): Tree<Entry<T>> | undefined {
    const store = this.storeOf(table);
    const view = this.stableView(store);
    const number = store.indexNumber(index, view);
    return store.index(number).find(view.indexes[number], checked(key));
  }

  #prefixes<T>(table: Table<T>, index: string): Trie<Tree<Entry<T>>> | undefined {
    const store = this.storeOf(table);
    const view = this.stableView(store);
    const number = store.indexNumber(index, view);
    if (!store.index(number).lpm) {
      throw new InvalidTableSpecError(
        table.name,
        `index "${index}" holds no prefixes; declare it with kind: 'lpm' to use lookup, covering and covered`,
      );
    }
    return view.indexes[number] as Trie<Tree<Entry<T>>> | undefined;
  }

  #entries<T>(tree: Tree<Entry<T>> | undefined): IterableIterator<T> {
    if (tree instanceof Entry) return new One(tree, this);
    return this.#rows(Cursor.all(tree));
  }

  #rows<T>(cursor: Cursor<Entry<T>>): Rows<T> {
    return new Rows(cursor, this);
  }

  *#rowsUntil<T>(cursor: Cursor<Entry<T>>, to: Key): Generator<T, undefined, undefined> {
    for (let entry = cursor.next(); entry !== undefined && entry.key < to; entry = cursor.next()) {
      this.check();
      yield entry.row;
    }
    return undefined;
  }

  /** The rows of several index keys; a row that is found by more than one is given once. */
  *#each<T>(found: Iterable<Tree<Entry<T>>>): Generator<T, undefined, undefined> {
    const seen = new Set<Key>();
    for (const tree of found) {
      const entries = Cursor.all(tree);
      for (let entry = entries.next(); entry !== undefined; entry = entries.next()) {
        if (seen.has(entry.key)) continue;
        seen.add(entry.key);
        this.check();
        yield entry.row;
      }
    }
    return undefined;
  }
}

function* entriesOf<T>(cursor: Cursor<Posting<T>>, to: Key | undefined): Generator<Tree<Entry<T>>> {
  for (let posting = cursor.next(); posting !== undefined; posting = cursor.next()) {
    if (to !== undefined && posting.key >= to) return;
    yield posting.entries;
  }
}

function* valuesOf<V>(nodes: Iterable<{ readonly value: V }>): Generator<V> {
  for (const { value } of nodes) yield value;
}

/** Shows rows to a visitor. */
class Visit<T> implements Visitor<Entry<T>> {
  readonly #reader: SnapshotReader;
  readonly #visitor: (row: T) => false | undefined;

  constructor(reader: SnapshotReader, visitor: (row: T) => false | undefined) {
    this.#reader = reader;
    this.#visitor = visitor;
  }

  leaf(entry: Entry<T>): boolean {
    this.#reader.check();
    const visitor = this.#visitor;
    return visitor(entry.row) !== false;
  }
}

/** Shows the rows of index keys, each row once. */
class VisitOnce<T> implements Visitor<Posting<T>> {
  readonly #rows: Visit<T>;
  readonly #seen = new Set<Key>();

  constructor(reader: SnapshotReader, visitor: (row: T) => false | undefined) {
    this.#rows = new Visit(reader, visitor);
  }

  leaf({ entries }: Posting<T>): boolean {
    return walk(entries, { leaf: (entry) => this.#entry(entry) });
  }

  #entry(entry: Entry<T>): boolean {
    if (this.#seen.has(entry.key)) return true;
    this.#seen.add(entry.key);
    return this.#rows.leaf(entry);
  }
}

/** Iterates rows without a generator's cost. */
class Rows<T> implements IterableIterator<T> {
  readonly #cursor: Cursor<Entry<T>>;
  readonly #reader: SnapshotReader;

  constructor(cursor: Cursor<Entry<T>>, reader: SnapshotReader) {
    this.#cursor = cursor;
    this.#reader = reader;
  }

  next(): IteratorResult<T, undefined> {
    this.#reader.check();
    const entry = this.#cursor.next();
    return entry === undefined ? { done: true, value: undefined } : { done: false, value: entry.row };
  }

  [Symbol.iterator](): this {
    return this;
  }
}

/** The one row, which most answers by key are. */
class One<T> implements IterableIterator<T> {
  readonly #reader: SnapshotReader;
  #entry: Entry<T> | undefined;

  constructor(entry: Entry<T>, reader: SnapshotReader) {
    this.#entry = entry;
    this.#reader = reader;
  }

  next(): IteratorResult<T, undefined> {
    this.#reader.check();
    const entry = this.#entry;
    this.#entry = undefined;
    return entry === undefined ? { done: true, value: undefined } : { done: false, value: entry.row };
  }

  [Symbol.iterator](): this {
    return this;
  }
}

function checked(key: Key): Key {
  if (typeof key !== 'string') throw new InvalidKeyError(`${String(key)} is not a key; keys are strings`);
  return key;
}

/** The postings of an index in key order. */
function ordered<T>(store: TableStore<T>, view: View<T>, name: string): Tree<Posting<T>> | undefined {
  const number = store.indexNumber(name, view);
  if (store.index(number).lpm) {
    throw new InvalidTableSpecError(
      store.spec.name,
      `index "${name}" holds prefixes; ask it with list, lookup, covering or covered`,
    );
  }
  return view.indexes[number] as Root<T> as Tree<Posting<T>> | undefined;
}
