/** One table: its committed content, its history, its watches, and the draft of the running transaction. */
import { Entry, goAway, isGone, Marker } from './entry.ts';
import {
  InvalidTableSpecError,
  KeyChangedError,
  KeyFunctionError,
  MutatedRowError,
  RowExistsError,
  RowNotFoundError,
  UnknownIndexError,
  UnknownTableError,
} from './errors.ts';
import { deepFreeze } from './freeze.ts';
import { History } from './history.ts';
import { Index, type Root } from './indexes.ts';
import { Cursor, find, put, remove } from './tree.ts';
import type { IndexSpec, Key, Revision, Table, TableSpec } from './types.ts';
import { Draft, type Edits, EMPTY, type View } from './view.ts';
import type { WatchNode } from './watch.ts';
import { type RowChange, TableWatches } from './watches.ts';

/** What users hold of a table. */
export class TableHandle<T> implements Table<T> {
  readonly name: string;
  readonly spec: TableSpec<T>;
  readonly #store: TableStore<T>;

  constructor(store: TableStore<T>) {
    this.name = store.spec.name;
    this.spec = store.spec;
    this.#store = store;
  }

  static storeOf<T>(table: Table<T>): TableStore<T> | undefined {
    return typeof table === 'object' && table !== null && #store in table
      ? (table as unknown as TableHandle<T>).#store
      : undefined;
  }
}

/** Throws `UnknownTableError` for a table of another StateDB than the one with these tokens. */
export function storeOf<T>(table: Table<T>, owner: Edits): TableStore<T> {
  const store = TableHandle.storeOf(table);
  if (store?.edits !== owner) throw new UnknownTableError(table?.name ?? typeof table);
  return store;
}

/** Keys of one row in one index. */
const FEW_KEYS = 16;
const NOTHING: readonly never[] = [];

export class TableStore<T> {
  readonly spec: TableSpec<T>;
  readonly history = new History<T>();
  readonly watches = new TableWatches<T>();
  readonly #indexes: Index<T>[] = [];
  readonly edits: Edits;
  readonly number: number;
  readonly handle: Table<T>;
  readonly #freeze: boolean;
  #committed: View<T> = EMPTY;
  #draft: Draft<T> | undefined;
  /** The token under which the running transaction edits trees. */
  #edit = 0;
  /** Entries and markers of the running transaction, by revision; among them some that it has replaced itself. */
  #changes: Entry<T>[] = [];
  /** Rows that the running transaction has deleted, for as long as it has not written them again. */
  #deleted: Map<Key, Marker<T>> | undefined;

  /** `number` is the table's place among all views. */
  constructor(spec: TableSpec<T>, number: number, edits: Edits, freeze: boolean) {
    if (typeof spec.name !== 'string' || spec.name === '' || typeof spec.key !== 'function') {
      throw new InvalidTableSpecError(String(spec.name), 'it needs a name and a function `key`');
    }
    this.spec = spec;
    this.number = number;
    this.edits = edits;
    this.handle = new TableHandle(this);
    this.#freeze = freeze;
    for (const index of spec.indexes ?? []) this.addIndex(index);
  }

  get committed(): View<T> {
    return this.#committed;
  }

  /** What the running transaction sees. */
  get current(): View<T> {
    return this.#draft ?? this.#committed;
  }

  get indexNames(): readonly string[] {
    return this.#indexes.map(({ spec }) => spec.name);
  }

  /** Throws what the key functions throw, `UniqueIndexError`, `InvalidTableSpecError`; then nothing is added. */
  addIndex(spec: IndexSpec<T>): void {
    if (this.#indexes.some((other) => other.spec.name === spec.name)) {
      throw new InvalidTableSpecError(this.spec.name, `two indexes are named "${spec.name}"; give each its own name`);
    }
    const index = new Index(this.spec.name, spec);
    const edit = this.edits.next();
    let root: Root<T>;
    const cursor = Cursor.all(this.#committed.rows);
    for (let entry = cursor.next(); entry !== undefined; entry = cursor.next()) {
      const keys = index.keysOf(entry.row);
      index.check(root, entry.key, keys);
      for (const key of keys) root = index.add(root, key, entry, edit);
      entry.keys += keys.length;
    }
    this.#indexes.push(index);
    this.#committed = { ...this.#committed, indexes: [...this.#committed.indexes, root] };
    this.watches.addIndex(index);
  }

  /** The number of an index that the view knows. */
  indexNumber(name: string, view: View<T> = this.#committed): number {
    const indexes = this.#indexes;
    for (let i = 0; i < view.indexes.length; i++) if (indexes[i]?.spec.name === name) return i;
    throw new UnknownIndexError(this.spec.name, name, this.indexNames.slice(0, view.indexes.length));
  }

  index(number: number): Index<T> {
    return this.#indexes[number] as Index<T>;
  }

  keyOf(row: T): Key {
    let key: unknown;
    try {
      key = this.spec.key(row);
    } catch (error) {
      throw new KeyFunctionError(this.spec.name, undefined, 'a key', undefined, error);
    }
    if (typeof key !== 'string') throw new KeyFunctionError(this.spec.name, undefined, 'a key', key);
    return key;
  }

  /** From here on what the running transaction sees is changed by copy: at its begin, and after it was handed out. */
  seal(): void {
    this.#edit = this.edits.next();
  }

  insert(row: T): void {
    const key = this.keyOf(row);
    if (find(this.current.rows, key) !== undefined) throw new RowExistsError(this.spec.name, key);
    this.#store(key, undefined, row);
  }

  upsert(row: T): T | undefined {
    const key = this.keyOf(row);
    const old = find(this.current.rows, key);
    this.#store(key, old, row);
    return old?.row;
  }

  modify(row: T, merge: (there: T, row: T) => T): T | undefined {
    const key = this.keyOf(row);
    const old = find(this.current.rows, key);
    const merged = old === undefined ? row : this.#sameKey(key, merge(old.row, row));
    // The merge function may have written the row itself: its result replaces that.
    this.#store(key, find(this.current.rows, key), merged);
    return old?.row;
  }

  compareAndSwap(revision: Revision, row: T): boolean {
    const key = this.keyOf(row);
    const old = find(this.current.rows, key);
    if ((old?.revision ?? 0) !== revision) return false;
    this.#store(key, old, row);
    return true;
  }

  edit(key: Key, change: (row: T) => T): T {
    const old = find(this.current.rows, key);
    if (old === undefined) throw new RowNotFoundError(this.spec.name, key);
    const changed = this.#sameKey(key, change(old.row));
    return this.#store(key, find(this.current.rows, key), changed);
  }

  #sameKey(key: Key, row: T): T {
    const now = this.keyOf(row);
    if (now !== key) throw new KeyChangedError(this.spec.name, key, now);
    return row;
  }

  /** Stores a row where `old` is. Throws before anything is changed. Returns the row that is there now. */
  #store(key: Key, old: Entry<T> | undefined, row: T): T {
    if (old !== undefined) {
      this.#checkUnchanged(old);
      if (old.row === row || this.spec.equals?.(old.row, row) === true) return old.row;
    }
    const draft = this.#open();
    const indexes = this.#indexes;
    const edit = this.#edit;
    if (indexes.length === 0) {
      if (this.#freeze) deepFreeze(row);
      const entry = new Entry(key, row, ++draft.revision);
      draft.rows = put(draft.rows, entry, edit);
      this.#record(old, entry, draft);
      return row;
    }
    const from = old === undefined ? NOTHING : this.#keysOf(old, draft);
    const to: (readonly Key[])[] = [];
    let count = 0;
    for (let i = 0; i < indexes.length; i++) {
      const index = indexes[i] as Index<T>;
      const keys = index.keysOf(row);
      index.check(draft.indexes[i], key, keys);
      to.push(keys);
      count += keys.length;
    }
    if (this.#freeze) deepFreeze(row);
    const entry = new Entry(key, row, ++draft.revision);
    entry.keys = count;
    draft.rows = put(draft.rows, entry, edit);
    for (let i = 0; i < indexes.length; i++) {
      const index = indexes[i] as Index<T>;
      const keys = to[i] ?? NOTHING;
      let root = draft.indexes[i];
      const stays = has(keys);
      for (const gone of from[i] ?? NOTHING) if (!stays(gone)) root = index.drop(root, gone, key, edit);
      for (const added of keys) root = index.add(root, added, entry, edit);
      draft.indexes[i] = root;
    }
    this.#record(old, entry, draft);
    return row;
  }

  delete(key: Key): T | undefined {
    const old = find(this.current.rows, key);
    if (old === undefined) return undefined;
    this.#checkUnchanged(old);
    const draft = this.#open();
    const keysOf = this.#keysOf(old, draft);
    draft.rows = remove(draft.rows, key, this.#edit);
    this.#indexes.forEach((index, i) => {
      let root = draft.indexes[i];
      for (const gone of keysOf[i] ?? NOTHING) root = index.drop(root, gone, key, this.#edit);
      draft.indexes[i] = root;
    });
    draft.count--;
    draft.revision++;
    const replaced = this.#replacedBy(old);
    if (replaced === undefined) return old.row;
    const marker = new Marker(key, old.row, draft.revision);
    marker.before = replaced;
    this.#changes.push(marker);
    this.#deleted ??= new Map();
    this.#deleted.set(key, marker);
    return old.row;
  }

  deleteAll(): void {
    const cursor = Cursor.all(this.current.rows);
    this.seal();
    for (let entry = cursor.next(); entry !== undefined; entry = cursor.next()) this.delete(entry.key);
  }

  setPending(pending: readonly string[]): void {
    const draft = this.#open();
    draft.pending = pending;
    draft.complete = pending.length === 0;
  }

  #open(): Draft<T> {
    this.#draft ??= new Draft(this.#committed);
    return this.#draft;
  }

  /** The keys under which the indexes have a row. Throws `MutatedRowError` when they are no longer those of the row. */
  #keysOf(entry: Entry<T>, view: View<T>): readonly (readonly Key[])[] {
    const all: (readonly Key[])[] = [];
    let count = 0;
    for (let i = 0; i < this.#indexes.length; i++) {
      const index = this.#indexes[i] as Index<T>;
      const keys = index.keysOf(entry.row);
      index.checkUnchanged(view.indexes[i], entry, keys);
      all.push(keys);
      count += keys.length;
    }
    if (count !== entry.keys) throw new MutatedRowError(this.spec.name, undefined, entry.key);
    return all;
  }

  /** In tests, where it may cost: a row whose primary key was changed in place. */
  #checkUnchanged(old: Entry<T>): void {
    if (this.#freeze && this.keyOf(old.row) !== old.key) {
      throw new MutatedRowError(this.spec.name, undefined, old.key);
    }
  }

  /** The committed entry that whoever takes the place of `old` replaces; `old` goes when it is not committed itself. */
  #replacedBy(old: Entry<T>): Entry<T> | undefined {
    if (old.revision <= this.#committed.revision) return old;
    goAway(old);
    return old.before;
  }

  #record(old: Entry<T> | undefined, entry: Entry<T>, draft: Draft<T>): void {
    if (old !== undefined) {
      entry.before = this.#replacedBy(old);
    } else {
      draft.count++;
      const marker = this.#deleted?.get(entry.key);
      if (marker !== undefined) {
        this.#deleted?.delete(entry.key);
        entry.before = this.#replacedBy(marker);
      }
    }
    this.#changes.push(entry);
  }

  /**
   * Adds the watches that are to fire once the running transaction is committed. May throw what key functions throw;
   * changes nothing.
   */
  prepare(fire: WatchNode[]): void {
    const draft = this.#draft;
    if (draft === undefined) return;
    const { watches } = this;
    const changed: RowChange<T>[] = [];
    if (watches.size > 0) {
      for (const entry of this.#changes) {
        if (isGone(entry)) continue;
        changed.push({ key: entry.key, old: entry.before?.row, now: entry instanceof Marker ? undefined : entry.row });
      }
    }
    watches.collect(changed, this.#committed, draft, fire);
  }

  /** Makes the draft the committed content. Does not throw. */
  commit(): View<T> {
    const draft = this.#draft;
    if (draft === undefined) return this.#committed;
    const changes = this.#changes;
    // No iterator: until it is optimised it makes an object a step, and what is young when the collector comes is what it stops for.
    for (let i = 0; i < changes.length; i++) {
      const entry = changes[i] as Entry<T>;
      if (!isGone(entry)) this.history.commit(entry);
    }
    this.#committed = draft;
    this.abort();
    return draft;
  }

  /** Forgets the draft. */
  abort(): void {
    this.#draft = undefined;
    this.#deleted = undefined;
    if (this.#changes.length > 0) this.#changes = [];
  }
}

/** Whether a key is among these: of few a look at each is cheaper than a set of them. */
function has(keys: readonly Key[]): (key: Key) => boolean {
  if (keys.length <= FEW_KEYS) return (key) => keys.includes(key);
  const all = new Set(keys);
  return (key) => all.has(key);
}
