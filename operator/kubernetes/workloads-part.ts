import { definePart } from '../parts/contract.ts';
import { tablesPart } from '../tables-part.ts';
import { tenantLogPart } from '../tenant-log-part.ts';
import { workloadSources } from './sources.ts';

/** Namespaces, pods and nodes. */
export const workloadsPart = definePart({
  name: 'workloads',
  needs: { tables: tablesPart, tenantLog: tenantLogPart },
  build: ({ tables, tenantLog }, { db }) => ({
    sources: workloadSources({ db, tables, onBad: (...bad) => tenantLog.objectUnreadable(...bad) }),
  }),
});
