import type { StateDB } from '@weir/statedb';
import type { Logger, Tables } from '../core.ts';
import { tableKey } from '../create-tables.ts';
import type { KernelStores } from './kernel-stores.ts';

export interface AdoptionOptions {
  readonly db: StateDB;
  readonly tables: Pick<Tables, 'endpoints' | 'slots'>;
  readonly kernel: Pick<KernelStores, 'endpoints' | 'slots' | 'ipcache'>;
  readonly log: Logger;
}

/**
 * Removes what was found and nobody wants (endpoints whose interface lives have rows: `Strays`): call it once every table is complete and
 * everything wanted is in the kernel. Returns the endpoints that are gone.
 */
export function finishAdoption({ db, tables, kernel, log }: AdoptionOptions): readonly number[] {
  const { endpoints, slots, ipcache } = kernel;
  using snapshot = db.read();
  const counts = (id: number): boolean => {
    const row = snapshot.get(tables.endpoints, tableKey.endpoint(id));
    return row !== undefined && row.gone === undefined;
  };
  const strays = endpoints.strays(counts);
  for (const id of strays) {
    log.info({ endpoint: id }, 'removing an endpoint that was deleted, or whose interface is gone');
    // What only lost its interface may have it in another network namespace.
    endpoints.delete(id, { everywhere: false });
  }
  for (const slot of slots.slots()) {
    if (!snapshot.has(tables.slots, tableKey.slot(slot)) && !endpoints.uses(slot)) slots.retire(slot);
  }
  ipcache.forget();
  return strays;
}
