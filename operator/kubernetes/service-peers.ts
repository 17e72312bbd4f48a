/** What Services stand for, of the Services and their EndpointSlices. */
import type { ServicePeers } from '@weir/policy';
import { type Derivation, type DeriveReader, derive, type StateDB } from '@weir/statedb';
import type { Tables } from '../tables.ts';
import type { ServiceRow } from '../types.ts';

export function deriveServicePeers(db: StateDB, tables: Tables): Derivation {
  const { services, serviceSlices, servicePeers } = tables;
  return derive(db, {
    name: 'service-peers',
    into: servicePeers,
    inputs: [services, serviceSlices],
    fn: (row, read) => [servicePeersOf(row, read, tables)],
  });
}

/** Addresses of a Service that selects pods are not looked at: its pods come and go, and change nothing here. */
function servicePeersOf(
  { key, namespace, name, labels, selector, external }: ServiceRow,
  read: DeriveReader,
  { serviceSlices }: Tables,
): ServicePeers {
  if (external) return { namespace, name, labels, addresses: [] };
  if (Object.keys(selector).length > 0) return { namespace, name, labels, selector, addresses: [] };
  const addresses = [...read.list(serviceSlices, 'service', key)].flatMap((slice) => slice.addresses);
  return { namespace, name, labels, addresses: [...new Set(addresses)].sort() };
}
