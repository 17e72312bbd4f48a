/** What Services stand for, of the Services and their EndpointSlices. */
import type { ServicePeers } from '@weir/policy';
import { type Derivation, derive, type StateDB } from '@weir/statedb';
import type { Tables } from '../tables.ts';
import type { ServiceRow, ServiceSliceRow } from '../types.ts';

export function deriveServicePeers(db: StateDB, tables: Tables): Derivation {
  const { services, serviceSlices, servicePeers } = tables;
  return derive(db, {
    name: 'servicePeers',
    into: servicePeers,
    inputs: [services, serviceSlices],
    fn: (row, read) => [servicePeersOf(row, () => read.list(serviceSlices, 'service', row.key))],
  });
}

/** Addresses of a Service that selects pods are not looked at: its pods come and go, and change nothing here. */
export function servicePeersOf(
  { namespace, name, labels, selector, external }: ServiceRow,
  slices: () => Iterable<ServiceSliceRow>,
): ServicePeers {
  if (external) return { namespace, name, labels, addresses: [] };
  if (Object.keys(selector).length > 0) return { namespace, name, labels, selector, addresses: [] };
  const addresses = [...slices()].flatMap((slice) => slice.addresses);
  return { namespace, name, labels, addresses: [...new Set(addresses)].sort() };
}
