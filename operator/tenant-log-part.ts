import { definePart } from './parts/contract.ts';
import { TenantLog } from './tenant-log.ts';

/** Lines of the log that tenants cause. */
export const tenantLogPart = definePart({
  name: 'tenant-log',
  build: (_given, { log }) => {
    const tenantLog = new TenantLog(log);
    return { provides: tenantLog, stop: () => tenantLog.stop() };
  },
});
