import { isDeepStrictEqual } from 'node:util';
import type { KubeObject, ReflectorSink } from '@weir/kube';
import type { InitDone, StateDB, Table, WriteTxn } from '@weir/statedb';
import { messageOf } from '../config/system-error.ts';
import type { Logger } from '../core.ts';

export interface TableSinkOptions<T extends KubeObject, P, R> {
  readonly db: StateDB;
  readonly table: Table<R>;
  readonly log: Logger;
  /** What one object says, by row key. A throw is this object's error: what it said before stays. */
  readonly parts: (object: T) => ReadonlyMap<string, P>;
  /** The row that all parts of one key make (in the order they came), given the row it made before; undefined: no row. */
  readonly merge: (key: string, parts: readonly P[], before: R | undefined) => R | undefined;
}

/**
 * Carries objects of the API into a table. Several objects may say something of one row (slices). Every call is one transaction, rows that
 * do not change are not written, and the table is initialised by the first complete list, in the same transaction.
 */
export class TableSink<T extends KubeObject, P, R> implements ReflectorSink<T> {
  readonly #options: TableSinkOptions<T, P, R>;
  /** Row key -> object -> its part. */
  readonly #parts = new Map<string, Map<string, P>>();
  /** Object -> the row keys it speaks of. */
  readonly #objects = new Map<string, readonly string[]>();
  readonly #rows = new Map<string, R>();
  #initDone: InitDone | undefined;

  constructor(options: TableSinkOptions<T, P, R>) {
    this.#options = options;
    this.#initDone = options.db.initialiser(options.table, 'kubernetes');
  }

  replace(items: readonly T[]): void {
    const touched = new Set<string>();
    const seen = new Set<string>();
    for (const item of items) {
      seen.add(objectKey(item));
      this.#take(item, touched);
    }
    for (const key of [...this.#objects.keys()]) if (!seen.has(key)) this.#drop(key, touched);
    this.#commit(touched, (txn) => {
      this.#initDone?.(txn);
    });
    this.#initDone = undefined;
  }

  upsert(item: T): void {
    const touched = new Set<string>();
    this.#take(item, touched);
    this.#commit(touched);
  }

  delete(item: T): void {
    const touched = new Set<string>();
    this.#drop(objectKey(item), touched);
    this.#commit(touched);
  }

  #take(item: T, touched: Set<string>): void {
    const key = objectKey(item);
    let parts: ReadonlyMap<string, P>;
    try {
      parts = this.#options.parts(item);
    } catch (error) {
      this.#options.log.error(
        { kind: item.kind, object: key, error: messageOf(error) },
        'object cannot be read and is left out',
      );
      if (!this.#objects.has(key)) this.#objects.set(key, []);
      return;
    }
    this.#drop(key, touched);
    this.#objects.set(key, [...parts.keys()]);
    for (const [rowKey, part] of parts) {
      const of = this.#parts.get(rowKey) ?? new Map<string, P>();
      this.#parts.set(rowKey, of.set(key, part));
      touched.add(rowKey);
    }
  }

  #drop(key: string, touched: Set<string>): void {
    for (const rowKey of this.#objects.get(key) ?? []) {
      const of = this.#parts.get(rowKey);
      of?.delete(key);
      if (of?.size === 0) this.#parts.delete(rowKey);
      touched.add(rowKey);
    }
    this.#objects.delete(key);
  }

  #commit(touched: ReadonlySet<string>, also: (txn: WriteTxn) => void = () => undefined): void {
    const { db, table, merge } = this.#options;
    db.write([table], (txn) => {
      for (const key of touched) {
        const parts = [...(this.#parts.get(key)?.values() ?? [])];
        const before = this.#rows.get(key);
        const row = parts.length === 0 ? undefined : merge(key, parts, before);
        if (row === undefined) {
          if (before !== undefined) txn.delete(table, table.spec.key(before));
          this.#rows.delete(key);
        } else if (!isDeepStrictEqual(before, row)) {
          txn.upsert(table, row);
          this.#rows.set(key, row);
        }
      }
      also(txn);
    });
  }
}

export function objectKey(object: KubeObject): string {
  return `${object.metadata.namespace ?? ''}/${object.metadata.name}`;
}

/** For kinds of which one object is one row: the last part. */
export function last<R>(_key: string, parts: readonly R[]): R | undefined {
  return parts.at(-1);
}
