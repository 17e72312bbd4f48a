import type { Table } from '@weir/statedb';
import { registerMetrics } from '@weir/statedb/prometheus';
import { gauge } from './metrics.ts';
import { definePart } from './parts/contract.ts';
import { createTables } from './tables.ts';

/** What is read, and what is to be written. */
export const tablesPart = definePart({
  name: 'tables',
  build: (_given, { db }) => {
    const tables = createTables(db);
    const count = (table: unknown) => (): number => {
      using snapshot = db.read();
      return snapshot.count(table as Table<never>);
    };
    return {
      provides: tables,
      metrics: (registry) => {
        gauge(registry, 'policies', 'Policies in the cluster.', count(tables.policies));
        gauge(registry, 'identities', 'Identities, unused ones included.', count(tables.identities));
        gauge(registry, 'peer_set_slices', 'Slices of peer sets.', count(tables.peerSets));
        gauge(registry, 'endpoint_slices', 'Endpoint slices.', count(tables.slices));
        registerMetrics(db, registry, 'weir_operator_statedb');
      },
    };
  },
});
