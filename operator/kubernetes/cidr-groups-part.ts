import { definePart } from '../parts/contract.ts';
import { tablesPart } from '../tables-part.ts';
import { tenantLogPart } from '../tenant-log-part.ts';
import { cidrGroupSources } from './sources.ts';

/** CiliumCIDRGroups, as `cidrGroupRef` and `cidrGroupSelector` mean them. */
export const cidrGroupsPart = definePart({
  name: 'cidr-groups',
  needs: { tables: tablesPart, tenantLog: tenantLogPart },
  build: ({ tables, tenantLog }, { db }) => ({
    sources: cidrGroupSources({ db, tables, onBad: (...bad) => tenantLog.objectUnreadable(...bad) }),
  }),
});
