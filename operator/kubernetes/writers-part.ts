import { registerMetrics } from '@weir/reconciler/prometheus';
import { failuresPart } from '../failures-part.ts';
import { leasePart } from '../lease-part.ts';
import { onceComplete } from '../once-complete.ts';
import { definePart } from '../parts/contract.ts';
import { tablesPart } from '../tables-part.ts';
import { totalsPart } from '../totals-part.ts';
import { targetsPart } from './targets-part.ts';
import { isOrdinaryWait } from './waits.ts';
import { Writers } from './writers.ts';

/** From the desired tables into the API. */
export const writersPart = definePart({
  name: 'writers',
  needs: { tables: tablesPart, lease: leasePart, targets: targetsPart, totals: totalsPart, failures: failuresPart },
  // Where a write is not answered in time this part fails to stop, and the lease is not given back.
  stopWithinMs: Infinity,
  build: ({ tables, lease, targets, totals, failures }, { db, log, fail }) => {
    const statusWritten = new Set<(key: string) => void>();
    const writers = new Writers({
      client: lease.client,
      db,
      tables,
      targets,
      onWrite: (verb, resource) => totals.write(verb, resource),
      onStatus: (key) => {
        for (const listener of statusWritten) listener(key);
      },
      onError: (writer, key, error, retries, failingMs) => {
        const fields = { writer, key, retries, failingMs };
        if (isOrdinaryWait(error, failingMs)) {
          log.debug({ writer, key, reason: error.message, retries, failingMs }, 'write waits');
          return;
        }
        failures.failed({
          component: writer,
          error,
          message: 'write failed',
          fields,
          kind: `write failed ${writer}`,
        });
      },
    });
    // Until the first state is complete, what is desired is a part of it.
    const beginning = onceComplete(db, tables.statuses, () => writers.start(), fail);
    return {
      provides: {
        /** Tells by its key of a policy whose status was written. */
        onStatus: (listener: (key: string) => void): void => {
          statusWritten.add(listener);
        },
        attempted: (signal?: AbortSignal) => writers.attempted(signal),
      },
      start: () => beginning.start(),
      stop: async () => {
        beginning.stop();
        await writers.stop();
      },
      metrics: (registry) => registerMetrics(() => writers.reconcilers, registry, 'weir_operator_writer'),
    };
  },
});
