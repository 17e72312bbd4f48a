import { definePart } from '../parts/contract.ts';
import { tablesPart } from '../tables-part.ts';
import { tenantLogPart } from '../tenant-log-part.ts';
import { reportSources } from './sources.ts';

/** What nodes report. */
export const reportsPart = definePart({
  name: 'reports',
  needs: { tables: tablesPart, tenantLog: tenantLogPart },
  build: ({ tables, tenantLog }, { db }) => ({
    sources: reportSources({ db, tables, onBad: (...bad) => tenantLog.objectUnreadable(...bad) }),
  }),
});
