/**
 * Slots that endpoints point at and that no row describes: they were found, and the first plan gives the endpoints others, or the kernel has refused
 * the endpoints' words. An address outside that gets a number of its own means there what it meant before. (Where there is a row,
 * `withNewCidrs` sees to that.)
 */
import { isLocalCidr } from '@weir/identity';
import type { StateDB } from '@weir/statedb';
import type { Tables } from '../core.ts';
import { tableKey } from '../create-tables.ts';
import type { Plan } from '../derive/contract.ts';
import type { EndpointStore } from './endpoint-store.ts';
import type { SlotStore } from './slot-store.ts';

type Move = readonly [from: number, to: number];

export interface FoundSlots {
  readonly db: StateDB;
  readonly tables: Pick<Tables, 'slots'>;
  readonly slots: Pick<SlotStore, 'slots' | 'follow'>;
  readonly endpoints: Pick<EndpointStore, 'uses'>;
}

/** What CIDRs of the plan mean that get a number: from the identity of what is around them to their own. */
export function cidrMoves({ ipcache, moved }: Pick<Plan, 'ipcache' | 'moved'>): readonly Move[] {
  return ipcache.flatMap(({ prefix, identity }) => {
    const from = moved.get(prefix);
    return from === undefined || !isLocalCidr(identity) ? [] : [[from, identity] as const];
  });
}

/** To be called before the CIDRs' addresses are written. */
export async function announceCidrs(
  movesOf: () => readonly Move[],
  { db, tables, slots, endpoints }: FoundSlots,
): Promise<void> {
  using snapshot = db.read();
  const found = slots
    .slots()
    .filter((slot) => !snapshot.has(tables.slots, tableKey.slot(slot)) && endpoints.uses(slot));
  if (found.length === 0) return;
  const moves = movesOf();
  for (const slot of found) await slots.follow(slot, moves);
}
