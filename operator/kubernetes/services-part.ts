import { definePart } from '../parts/contract.ts';
import { tablesPart } from '../tables-part.ts';
import { tenantLogPart } from '../tenant-log-part.ts';
import { deriveServicePeers } from './service-peers.ts';
import { serviceSources } from './sources.ts';

/** Services, as `toServices` means them. */
export const servicesPart = definePart({
  name: 'services',
  needs: { tables: tablesPart, tenantLog: tenantLogPart },
  build: ({ tables, tenantLog }, { db }) => {
    const derivation = deriveServicePeers(db, tables);
    return {
      sources: serviceSources({ db, tables, onBad: (...bad) => tenantLog.objectUnreadable(...bad) }),
      stop: () => derivation[Symbol.dispose](),
    };
  },
});
