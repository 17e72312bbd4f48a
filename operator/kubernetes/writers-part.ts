import { registerMetrics } from '@weir/reconciler/prometheus';
import { failuresPart } from '../failures-part.ts';
import { leasePart } from '../lease-part.ts';
import { onceComplete } from '../once-complete.ts';
import { definePart } from '../parts/contract.ts';
import { tablesPart } from '../tables-part.ts';
import { isOrdinaryWait } from './waits.ts';
import { Writers, type WritersOptions } from './writers.ts';

/** From the desired tables of all parts into the API. */
export const writersPart = definePart({
  name: 'writers',
  needs: { tables: tablesPart, lease: leasePart, failures: failuresPart },
  // Where a write is not answered in time this part fails to stop, and the lease is not given back.
  stopWithinMs: Infinity,
  build: ({ tables, lease, failures }, { db, log, fail, operator }) => {
    const onError: WritersOptions['onError'] = (writer, key, error, retries, failingMs) => {
      const fields = { writer, key, retries, failingMs };
      if (isOrdinaryWait(error, failingMs)) {
        log.debug({ ...fields, reason: error.message }, 'write waits');
        return;
      }
      failures.failed({ component: writer, error, message: 'write failed', fields, kind: `write failed ${writer}` });
    };
    let writers: Writers | undefined;
    // Until the first state is complete, what is desired is a part of it.
    const beginning = onceComplete(db, tables.statuses, () => writers?.start(), fail);
    const attempted: Writers['attempted'] = async (...rows) => writers?.attempted(...rows);
    return {
      provides: {
        attempted,
        settled: async (signal?: AbortSignal) => (await writers?.settled(signal)) ?? new Map<string, number>(),
      },
      start: () => {
        writers = new Writers({ client: lease.client, db, kinds: operator.desired(), onError });
        beginning.start();
      },
      stop: async () => {
        beginning.stop();
        await writers?.stop();
      },
      metrics: (registry) => registerMetrics(() => writers?.reconcilers ?? [], registry, 'weir_operator_writer'),
    };
  },
});
