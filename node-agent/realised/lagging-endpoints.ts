import type { Table, WriteTxn } from '@weir/statedb';
import { tableKey } from '../create-tables.ts';
import { hostPrefix, type Model } from '../derive/index.ts';
import type { LaggingEndpointRow } from '../tables.ts';
import { type Acknowledgements, refusedAddresses, refusedSlots } from './sources.ts';

/** Endpoints that the kernel does not have as they are wanted, or whose policies are not compiled. */
export function laggingEndpoints(model: Model, { sync, writer, endpoints }: Acknowledgements): Set<number> {
  const lagging = new Set<number>();
  for (const id of model.endpoints()) if (model.failure(id) !== undefined) lagging.add(id);
  const slots = refusedSlots(writer);
  const addresses = new Set(refusedAddresses(writer).map(({ row }) => row.prefix));
  if (sync.broken === undefined && writer.endpoints.failing().length + slots.size + addresses.size === 0)
    return lagging;
  for (const state of model.states()) {
    const { id, slot } = state;
    const refused = state.addresses.some((address) => addresses.has(hostPrefix(address) ?? ''));
    if (endpoints.acknowledged(id) !== state || slots.has(slot) || refused) lagging.add(id);
  }
  return lagging;
}

/** @param before the policy revision that the kernel has of those that begin to lag, where it has anything of them */
export function putLagging(
  txn: WriteTxn,
  table: Table<LaggingEndpointRow>,
  lagging: ReadonlySet<number>,
  { before, endpoints }: { readonly before: number } & Pick<Acknowledgements, 'endpoints'>,
): void {
  for (const { id } of txn.all(table)) if (!lagging.has(id)) txn.delete(table, tableKey.endpoint(id));
  for (const id of lagging)
    if (!txn.has(table, tableKey.endpoint(id)))
      txn.insert(table, { id, revision: endpoints.acknowledged(id) === undefined ? 0 : before });
}
