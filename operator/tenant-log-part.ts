import { definePart } from './parts/contract.ts';
import { TenantLog } from './tenant-log.ts';
import { totalsPart } from './totals-part.ts';

/** Lines of the log that tenants cause. */
export const tenantLogPart = definePart({
  name: 'tenant-log',
  needs: { totals: totalsPart },
  build: ({ totals }, { log }) => {
    const tenantLog = new TenantLog(log, totals);
    return { provides: tenantLog, stop: () => tenantLog.stop() };
  },
});
