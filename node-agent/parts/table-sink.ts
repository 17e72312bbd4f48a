import { isDeepStrictEqual } from 'node:util';
import { type KubeObject, type ReflectorSink, reachesVersion } from '@weir/kube';
import { messageOf } from '@weir/process/errors';
import type { InitDone, Key, StateDB, Table, WriteTxn } from '@weir/statedb';
import type { Logger } from '../core.ts';

export interface TableSinkOptions<T extends KubeObject, P, R> {
  readonly db: StateDB;
  readonly table: Table<R>;
  readonly log: Logger;
  /** Parts of rows that one object contributes, by the primary key of the row. A throw is this object's error: its former rows stay. */
  readonly parts: (object: T) => ReadonlyMap<Key, P>;
  /** The row that all parts of one key make (in the order they came), given the row it made before; undefined: no row. */
  readonly merge: (key: Key, parts: readonly P[], before: R | undefined) => R | undefined;
  /** Whether a row that is there was made by this sink. Default: nobody else writes the table. */
  readonly owns?: (row: R) => boolean;
}

/** What an object contributed when it was read last. */
interface ObjectParts<P> {
  readonly object: string;
  /** Its uid and version; undefined: it did not say them. */
  readonly version: string | undefined;
  /** Greater than that of every object that was read before. */
  readonly at: number;
  readonly parts: ReadonlyMap<Key, P>;
}

/**
 * Carries objects of the API into a table. Several objects may say something of one row (slices): table `<name>Parts` has what each of them
 * said, and an index that finds all that speak of a row. Every call is one transaction, rows that do not change are not written, and the
 * table is initialised by the first complete list, in the same transaction. A list costs what has changed: an object in the version that was
 * read last is not read again, unless the API server was put back to an earlier state, after which versions mean other contents.
 */
export class TableSink<T extends KubeObject, P, R> implements ReflectorSink<T> {
  readonly #options: TableSinkOptions<T, P, R>;
  readonly #parts: Table<ObjectParts<P>>;
  #initDone: InitDone | undefined;
  /** The newest that the API server is known to have had. */
  #version: string | undefined;

  constructor(options: TableSinkOptions<T, P, R>) {
    const { db, table } = options;
    this.#options = options;
    this.#parts = db.table<ObjectParts<P>>({
      name: `${table.name}Parts`,
      key: (row) => row.object,
      indexes: [{ name: 'row', keys: (row) => row.parts.keys() }],
    });
    this.#initDone = db.initialiser(table, 'kubernetes');
  }

  /** Without the list's version, everything is read. */
  replace(items: readonly T[], version?: string): void {
    const seen = new Set(items.map(objectKey));
    const grown = version !== undefined && this.#version !== undefined && reachesVersion(version, this.#version);
    this.#write((txn, touched) => {
      for (const item of items) if (!grown || !this.#knows(txn, item)) this.#take(txn, item, touched);
      for (const { object } of txn.all(this.#parts)) if (!seen.has(object)) this.#drop(txn, object, touched);
      this.#initDone?.(txn);
    });
    this.#initDone = undefined;
    this.#version = version;
  }

  upsert(item: T): void {
    this.#write((txn, touched) => this.#take(txn, item, touched));
    this.#version = item.metadata.resourceVersion ?? this.#version;
  }

  delete(item: T): void {
    this.#write((txn, touched) => this.#drop(txn, objectKey(item), touched));
    this.#version = item.metadata.resourceVersion ?? this.#version;
  }

  #knows(txn: WriteTxn, item: T): boolean {
    const version = versionOf(item);
    return version !== undefined && txn.get(this.#parts, objectKey(item))?.version === version;
  }

  #take(txn: WriteTxn, item: T, touched: Set<Key>): void {
    const object = objectKey(item);
    try {
      const parts = this.#options.parts(item);
      const read = { object, version: versionOf(item), at: txn.revision(this.#parts), parts };
      const before = txn.upsert(this.#parts, read);
      touch(touched, before);
      for (const key of parts.keys()) touched.add(key);
    } catch (error) {
      const fields = { kind: item.kind, object, error: messageOf(error) };
      this.#options.log.error(fields, 'ignoring an object that cannot be read');
    }
  }

  #drop(txn: WriteTxn, object: string, touched: Set<Key>): void {
    touch(touched, txn.delete(this.#parts, object));
  }

  /** `change` notes the keys of rows to which a changed object contributes; these rows are merged again. */
  #write(change: (txn: WriteTxn, touched: Set<Key>) => void): void {
    const { db, table, merge, owns } = this.#options;
    db.write([table, this.#parts], (txn) => {
      const touched = new Set<Key>();
      change(txn, touched);
      for (const key of touched) {
        const there = txn.get(table, key);
        const before = there === undefined || owns?.(there) === false ? undefined : there;
        const parts = this.#partsOf(txn, key);
        const row = parts.length === 0 ? undefined : merge(key, parts, before);
        if (row === undefined) {
          if (before !== undefined) txn.delete(table, key);
        } else if (!isDeepStrictEqual(before, row)) txn.upsert(table, row);
      }
    });
  }

  #partsOf(txn: WriteTxn, key: Key): readonly P[] {
    const speakers = [...txn.list(this.#parts, 'row', key)].sort((a, b) => a.at - b.at);
    return speakers.flatMap(({ parts }) => {
      const part = parts.get(key);
      return part === undefined ? [] : [part];
    });
  }
}

function touch(touched: Set<Key>, row: ObjectParts<unknown> | undefined): void {
  for (const key of row?.parts.keys() ?? []) touched.add(key);
}

function versionOf({ metadata: { uid, resourceVersion } }: KubeObject): string | undefined {
  return uid === undefined || resourceVersion === undefined ? undefined : `${uid} ${resourceVersion}`;
}

export function objectKey(object: KubeObject): string {
  return `${object.metadata.namespace ?? ''}/${object.metadata.name}`;
}

/** For kinds of which one object is one row: the last part. */
export function last<R>(_key: string, parts: readonly R[]): R | undefined {
  return parts.at(-1);
}
