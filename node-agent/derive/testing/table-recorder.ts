/** A StateDB that tells which tables are read and written, for tests. */
import type { AnyTable, StateDB } from '@weir/statedb';

type Access = (kind: 'reads' | 'writes', table: string) => void;

/** Methods of a reader that do not look at a table's rows, or end it. */
const LOOKS_AT_NOTHING: ReadonlySet<PropertyKey> = new Set([Symbol.dispose, 'initialised', 'revision']);
const CHANGES: ReadonlySet<PropertyKey> = new Set([
  ...['insert', 'upsert', 'modify', 'compareAndSwap', 'compareAndDelete', 'edit', 'delete', 'deleteAll'],
]);

/** `db`, and `access` called with each table of which some row is asked for or changed. */
export function recorded(db: StateDB, access: Access): StateDB {
  return new Proxy(db, {
    get(target, property): unknown {
      if (property === 'read') return () => watched(target.read(), access);
      if (property === 'write')
        return (tables: readonly AnyTable[], body: (txn: object) => unknown) =>
          target.write(tables, (txn) => body(watched(txn, access)));
      const value: unknown = Reflect.get(target, property, target);
      return typeof value === 'function' ? value.bind(target) : value;
    },
  });
}

/** The snapshot or transaction, each of whose calls names its table first, or has a query of it. */
function watched<T extends object>(reader: T, access: Access): T {
  return new Proxy(reader, {
    get(target, property): unknown {
      const value: unknown = Reflect.get(target, property, target);
      if (typeof value !== 'function') return value;
      return (...args: readonly [unknown, ...unknown[]]) => {
        if (!LOOKS_AT_NOTHING.has(property)) access(CHANGES.has(property) ? 'writes' : 'reads', nameOf(args[0]));
        return value.apply(target, args);
      };
    },
  });
}

function nameOf(of: unknown): string {
  if (typeof of !== 'object' || of === null) return String(of);
  if ('name' in of && typeof of.name === 'string') return of.name;
  return 'table' in of ? nameOf(of.table) : 'unknown';
}
