/**
 * What the units of a derivation have read. Each query is asked once and its answer shared by every unit that made it,
 * for as long as its watch has not fired; a query that no unit makes any more is let go.
 */

import { SnapshotDisposedError } from '../errors.ts';
import type { AnyTable, Key, Query, Reader, Snapshot, Table, Watch } from '../types.ts';
import { DeriveInputError } from './errors.ts';

/**
 * What a derivation may ask: the queries whose answers can be watched, on the derivation's inputs alone (others throw
 * `DeriveInputError`), while it is evaluated (later: `SnapshotDisposedError`). To ask whether a row is there is to read it;
 * answers are held whole for as long as a unit depends on them, so ask for little.
 */
export type DeriveReader = Pick<
  Reader,
  'get' | 'has' | 'all' | 'list' | 'prefix' | 'lowerBound' | 'range' | 'lookup' | 'covering' | 'covered' | 'select'
>;

/** One query's answer, and the units that read it. */
export interface Read<Unit> {
  readonly table: AnyTable;
  readonly id: string;
  readonly rows: readonly unknown[];
  readonly watch: Watch;
  /** The round that asked. */
  readonly round: number;
  readonly units: Set<Unit>;
  stop: () => void;
}

/** The same text for the same question on one table, and for no other. */
function idOf<T>(query: Query<T>): string {
  const { kind } = query;
  if (kind === 'all') return kind;
  const index = 'index' in query ? query.index : undefined;
  const head = `${kind} ${index === undefined ? '' : `${index.length} ${index}`}`;
  if (kind !== 'range') return `${head} ${query.key}`;
  return `${head} ${query.from.length} ${query.from}${query.to === undefined ? '' : ` ${query.to}`}`;
}

export class Reads<Unit> {
  readonly #derivation: string;
  readonly #byTable: ReadonlyMap<AnyTable, Map<string, Read<Unit>>>;
  readonly #changed: (unit: Unit) => void;
  #round = 0;

  /** `changed` is called for each unit whose answers have changed: from within a commit, or during `reader`'s use. */
  constructor(derivation: string, inputs: readonly AnyTable[], changed: (unit: Unit) => void) {
    this.#derivation = derivation;
    this.#byTable = new Map(inputs.map((table) => [table, new Map()]));
    this.#changed = changed;
  }

  /** Queries being watched. */
  get size(): number {
    let size = 0;
    for (const reads of this.#byTable.values()) size += reads.size;
    return size;
  }

  /** From here on, queries are answered by another snapshot. */
  begin(): void {
    this.#round++;
  }

  /** Evaluates `fn` for a unit; what it read goes into `reads`, also when it throws. */
  record<R>(unit: Unit, snapshot: Snapshot, reads: Set<Read<Unit>>, fn: (read: DeriveReader) => R): R {
    const recorder = new Recorder(<T>(query: Query<T>) => {
      const read = this.#read(query, snapshot);
      reads.add(read);
      if (!read.units.has(unit)) {
        read.units.add(unit);
        if (read.watch.fired) this.#changed(unit);
      }
      return read.rows as readonly T[];
    });
    try {
      return fn(recorder);
    } finally {
      recorder.close();
    }
  }

  /** The unit no longer depends on this answer. */
  release(read: Read<Unit>, unit: Unit): void {
    read.units.delete(unit);
    if (read.units.size > 0) return;
    read.stop();
    const reads = this.#byTable.get(read.table);
    if (reads?.get(read.id) === read) reads.delete(read.id);
  }

  #read<T>(query: Query<T>, snapshot: Snapshot): Read<Unit> {
    const reads = this.#byTable.get(query.table);
    if (reads === undefined) {
      throw new DeriveInputError(this.#derivation, query.table.name, 'is read by fn but is not among `inputs`; add it');
    }
    const id = idOf(query);
    const known = reads.get(id);
    // A fired one is still this snapshot's answer if it was asked there: a long run asks but once.
    if (known !== undefined && (!known.watch.fired || known.round === this.#round)) return known;
    const { rows, watch } = snapshot.watch(query);
    const read: Read<Unit> = {
      table: query.table,
      id,
      rows,
      watch,
      round: this.#round,
      units: new Set(),
      stop: () => {},
    };
    read.stop = watch.onFire(() => {
      for (const unit of read.units) this.#changed(unit);
    });
    reads.set(id, read);
    return read;
  }
}

/** What one evaluation asks. */
class Recorder implements DeriveReader {
  #ask: (<T>(query: Query<T>) => readonly T[]) | undefined;

  constructor(ask: <T>(query: Query<T>) => readonly T[]) {
    this.#ask = ask;
  }

  close(): void {
    this.#ask = undefined;
  }

  #rows<T>(query: Query<T>): readonly T[] {
    if (this.#ask === undefined) throw new SnapshotDisposedError();
    return this.#ask(query);
  }

  get<T>(table: Table<T>, key: Key): T | undefined {
    return this.#rows({ table, kind: 'get', key })[0];
  }

  has<T>(table: Table<T>, key: Key): boolean {
    return this.#rows({ table, kind: 'get', key }).length > 0;
  }

  all<T>(table: Table<T>): IterableIterator<T> {
    return this.select({ table, kind: 'all' });
  }

  list<T>(table: Table<T>, index: string, key: Key): IterableIterator<T> {
    return this.select({ table, kind: 'list', index, key });
  }

  prefix<T>(table: Table<T>, key: Key, index?: string): IterableIterator<T> {
    return this.select({ table, kind: 'prefix', key, index });
  }

  lowerBound<T>(table: Table<T>, from: Key, index?: string): IterableIterator<T> {
    return this.select({ table, kind: 'range', from, index });
  }

  range<T>(table: Table<T>, from: Key, to: Key | undefined, index?: string): IterableIterator<T> {
    return this.select({ table, kind: 'range', from, to, index });
  }

  lookup<T>(table: Table<T>, index: string, key: Key): IterableIterator<T> {
    return this.select({ table, kind: 'lookup', index, key });
  }

  covering<T>(table: Table<T>, index: string, key: Key): IterableIterator<T> {
    return this.select({ table, kind: 'covering', index, key });
  }

  covered<T>(table: Table<T>, index: string, key: Key): IterableIterator<T> {
    return this.select({ table, kind: 'covered', index, key });
  }

  select<T>(query: Query<T>): IterableIterator<T> {
    return this.#rows(query).values();
  }
}
