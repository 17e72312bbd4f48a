/** What a StateDB holds, as Prometheus metrics, read when scraped. Needs prom-client. */
import { Counter, Gauge, type Registry } from 'prom-client';
import type { StateDB, TableInfo } from './types.ts';

/**
 * Registers the metrics; their names begin with `prefix`. A stream that was forgotten shows as one that stays, and so does a snapshot where
 * they are counted (`countSnapshots`).
 */
export function registerMetrics(db: StateDB, registry: Registry, prefix = 'statedb'): void {
  const registers = [registry];
  if (db.stats().snapshots !== undefined) {
    new Gauge({
      name: `${prefix}_open_snapshots`,
      help: 'Snapshots taken and not disposed.',
      registers,
      collect() {
        this.set(db.stats().snapshots ?? 0);
      },
    });
  }
  new Counter({
    name: `${prefix}_watches_fired_total`,
    help: 'Watches fired by commits.',
    registers,
    collect() {
      this.reset();
      this.inc(db.stats().watchesFired);
    },
  });
  const ofTable = (name: string, help: string, value: (table: TableInfo) => number): void => {
    new Gauge({
      name: `${prefix}_${name}`,
      help,
      labelNames: ['table'] as const,
      registers,
      collect() {
        this.reset();
        for (const table of db.tables()) this.set({ table: table.name }, value(table));
      },
    });
  };
  ofTable('rows', 'Rows of a table.', ({ rows }) => rows);
  ofTable('revision', 'Revision of a table: its effective writes.', ({ revision }) => revision);
  ofTable(
    'pending_initialisers',
    'Sources that have not delivered a table completely.',
    ({ pending }) => pending.length,
  );
  ofTable('delete_markers', 'Deletes that a change stream has still to see.', ({ deleteMarkers }) => deleteMarkers);
  new Gauge({
    name: `${prefix}_stream_lag`,
    help: 'Revisions that a change stream is behind its table; of streams with one name the most.',
    labelNames: ['table', 'stream'] as const,
    registers,
    collect() {
      this.reset();
      for (const { name, streams } of db.tables()) {
        // Slowest first.
        for (const { name: stream, lag } of streams.toReversed()) this.set({ table: name, stream }, lag);
      }
    },
  });
}
