/** What the kernel acknowledged of what is wanted, and what it refuses: whence everything in this folder comes, beside the model. */
import type { Audit, EndpointStore, PlanWriter, SyncLoop } from '../datapath/index.ts';

export interface Acknowledgements {
  readonly sync: Pick<SyncLoop, 'broken'>;
  readonly writer: Pick<PlanWriter, 'slots' | 'endpoints' | 'ipcache'>;
  readonly endpoints: Pick<EndpointStore, 'acknowledged'>;
}

export interface RealisedSources extends Acknowledgements {
  readonly sync: Pick<SyncLoop, 'reached' | 'broken'>;
  readonly audit: Pick<Audit, 'faults'>;
}

/** Endpoints that the kernel does not take, each with the error. */
export function refusedEndpoints({ endpoints }: Pick<PlanWriter, 'endpoints'>): Map<number, Error> {
  return new Map(endpoints.failing().map(({ row, error }) => [row.id, error]));
}

/** Slots that the kernel does not take, each with the error. */
export function refusedSlots({ slots }: Pick<PlanWriter, 'slots'>): Map<number, Error> {
  return new Map(slots.failing().flatMap(({ row, deleted, error }) => (deleted ? [] : [[row.slot, error]])));
}

/** Addresses that the kernel does not take. */
export function refusedAddresses({ ipcache }: Pick<PlanWriter, 'ipcache'>) {
  return ipcache.failing().filter(({ deleted }) => !deleted);
}
