/** Reflects a kind into a table. */
import type { KubeObject, ReflectorSink } from '@weir/kube';
import type { StateDB, Table } from '@weir/statedb';

export interface TableSink<T extends KubeObject> extends ReflectorSink<T> {
  /** The kind cannot be read now: the table counts as complete without it. */
  withoutIt(): void;
}

/**
 * A sink that keeps `table` equal to the objects, one row each. `replace` removes the rows of vanished objects; the first
 * one completes the table's initialiser. `mine` says which rows of a shared table come from this kind.
 */
export function tableSink<T extends KubeObject, Row>(
  db: StateDB,
  table: Table<Row>,
  name: string,
  row: (object: T) => Row,
  mine: (row: Row) => boolean = () => true,
): TableSink<T> {
  const done = db.initialiser(table, name);
  const isPending = (): boolean => db.pendingInitialisers(table).includes(name);
  return {
    withoutIt() {
      if (isPending()) db.write([table], (txn) => done(txn));
    },
    replace(items) {
      const first = isPending();
      db.write([table], (txn) => {
        const rows = items.map(row);
        const keys = new Set(rows.map((item) => table.spec.key(item)));
        const gone = [...txn.all(table)].filter((old) => mine(old) && !keys.has(table.spec.key(old)));
        for (const old of gone) txn.delete(table, table.spec.key(old));
        for (const item of rows) txn.upsert(table, item);
        if (first) done(txn);
      });
    },
    upsert(item) {
      db.write([table], (txn) => {
        txn.upsert(table, row(item));
      });
    },
    delete(item) {
      db.write([table], (txn) => {
        txn.delete(table, table.spec.key(row(item)));
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
