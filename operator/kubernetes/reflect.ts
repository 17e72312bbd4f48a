/** Reflects a kind into a table. */
import type { KubeObject, ReflectorSink } from '@weir/kube';
import type { StateDB, Table } from '@weir/statedb';

export interface TableSink<T extends KubeObject> extends ReflectorSink<T> {
  /** The kind cannot be read now: the table counts as complete without it. */
  withoutIt(): void;
}

export interface TableSinkOptions<T extends KubeObject, Row> {
  readonly db: StateDB;
  readonly table: Table<Row>;
  /** Of the table's initialiser. */
  readonly name: string;
  /** May throw: the object is what somebody wrote. */
  readonly row: (object: T) => Row;
  /** The key of the object's row. */
  readonly key: (object: T) => string;
  /** Which rows of a shared table come from this kind. Default: all. */
  readonly mine?: (row: Row) => boolean;
  /** An object cannot be read. Others go on, and its row stays what it was. */
  readonly onBad: (object: T, error: unknown) => void;
}

/**
 * A sink that keeps `table` equal to the objects, one row each. `replace` removes the rows of vanished objects; the first
 * one completes the table's initialiser.
 */
export function tableSink<T extends KubeObject, Row>(options: TableSinkOptions<T, Row>): TableSink<T> {
  const { db, table, name, row, key, mine = () => true, onBad } = options;
  const done = db.initialiser(table, name);
  const isPending = (): boolean => db.pendingInitialisers(table).includes(name);
  const rowsOf = (object: T): Row[] => {
    try {
      return [row(object)];
    } catch (error) {
      onBad(object, error);
      return [];
    }
  };
  return {
    withoutIt() {
      if (isPending()) db.write([table], (txn) => done(txn));
    },
    replace(items) {
      const first = isPending();
      db.write([table], (txn) => {
        const keys = new Set(items.map(key));
        const gone = [...txn.all(table)].filter((old) => mine(old) && !keys.has(table.spec.key(old)));
        for (const old of gone) txn.delete(table, table.spec.key(old));
        for (const item of items.flatMap(rowsOf)) txn.upsert(table, item);
        if (first) done(txn);
      });
    },
    upsert(object) {
      db.write([table], (txn) => {
        for (const item of rowsOf(object)) txn.upsert(table, item);
      });
    },
    delete(object) {
      db.write([table], (txn) => {
        txn.delete(table, key(object));
      });
    },
  };
}

/** Passes everything on to several sinks. */
export function fanOut<T extends KubeObject>(...sinks: readonly ReflectorSink<T>[]): ReflectorSink<T> {
  return {
    replace: (items, version) => {
      for (const sink of sinks) sink.replace(items, version);
    },
    upsert: (item) => {
      for (const sink of sinks) sink.upsert(item);
    },
    delete: (item) => {
      for (const sink of sinks) sink.delete(item);
    },
  };
}
