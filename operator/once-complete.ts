import type { StateDB, Table } from '@weir/statedb';

/** Begins something once a table is complete; `stop` ends the wait. `fail` reports what fails. */
export function onceComplete<T>(
  db: StateDB,
  table: Table<T>,
  begin: () => void,
  fail: (error: Error) => void,
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
  const failed = (error: unknown): void => fail(error instanceof Error ? error : new Error(String(error)));
  return { start: () => void wait().catch(failed), stop: () => stopped.abort() };
}
