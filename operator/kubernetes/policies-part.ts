import { limitsPart } from '../limits-part.ts';
import { definePart } from '../parts/contract.ts';
import { tablesPart } from '../tables-part.ts';
import { tenantLogPart } from '../tenant-log-part.ts';
import { totalsPart } from '../totals-part.ts';
import { policySources } from './sources.ts';
import { targetsPart } from './targets-part.ts';

/** Policies, as they are written. */
export const policiesPart = definePart({
  name: 'policies',
  // Of a policy first the status that is known, then the row that may make a new one.
  needs: { targets: targetsPart, tables: tablesPart, limits: limitsPart, totals: totalsPart, tenantLog: tenantLogPart },
  build: ({ tables, limits, totals, tenantLog }, { db, log }) => ({
    sources: policySources({
      db,
      tables,
      limits,
      onBad: (...bad) => tenantLog.objectUnreadable(...bad),
      onMissing: (kind, because) => {
        if (because === undefined) {
          log.info({ kind }, 'policies of this kind can be read again');
          return;
        }
        totals.error('reflector');
        log.error(
          { kind, because },
          'policies of this kind cannot be read: what is enforced of them stays as it is, the others are served; grant the operator get, list and watch on them',
        );
      },
    }),
  }),
});
