import type { StateDB, Table } from '@weir/statedb';

/** Begins something once a table is complete; `stop` ends the wait. */
export function onceComplete<T>(
  db: StateDB,
  table: Table<T>,
  begin: () => void,
): { readonly start: () => void; readonly stop: () => void } {
  const stopped = new AbortController();
  const { signal } = stopped;
  const wait = async (): Promise<void> => {
    try {
      await db.initialisedWatch(table).wait(signal);
    } catch (error) {
      if (!signal.aborted) throw error;
    }
    if (!signal.aborted) begin();
  };
  return { start: () => void wait(), stop: () => stopped.abort() };
}
