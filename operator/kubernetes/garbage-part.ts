import { failuresPart } from '../failures-part.ts';
import { leasePart } from '../lease-part.ts';
import { onceComplete } from '../once-complete.ts';
import { definePart } from '../parts/contract.ts';
import { tablesPart } from '../tables-part.ts';
import { totalsPart } from '../totals-part.ts';
import { GarbageCollector } from './garbage.ts';

/** Takes away what agents that are gone have left. */
export const garbagePart = definePart({
  name: 'garbage',
  needs: { tables: tablesPart, lease: leasePart, totals: totalsPart, failures: failuresPart },
  // How long objects of nodes and pods that are gone are kept, and between two looks for them.
  settings: { orphanGraceMs: 5 * 60_000 },
  stopWithinMs: Infinity,
  build: ({ tables, lease, totals, failures }, { config, db, log, fail }) => {
    const { orphanGraceMs, now } = config;
    const garbage = new GarbageCollector({
      db,
      client: lease.client,
      hasPod: (namespace, name) => {
        using snapshot = db.read();
        return snapshot.has(tables.pods, `${namespace}/${name}`);
      },
      graceMs: orphanGraceMs,
      intervalMs: orphanGraceMs,
      now,
      onDeleted: (resource, key) => {
        totals.write('delete', resource);
        log.info({ resource, key }, 'removed: its owner is gone');
      },
      onError: (error) =>
        failures.failed({ component: 'garbage', error, message: 'cannot remove objects whose owner is gone' }),
    });
    const beginning = onceComplete(db, tables.inputSources, () => garbage.start(), fail);
    return {
      start: () => beginning.start(),
      stop: async () => {
        beginning.stop();
        await garbage.stop();
      },
    };
  },
});
