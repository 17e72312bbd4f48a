/** Addresses of Services: cluster IPs into map `svc_addresses`, all into `svc_filter`. */
import type { Operations } from '@weir/reconciler';
import { type Derivation, derive, keys, type StateDB, type Table } from '@weir/statedb';
import type { BpfMap } from 'libbpf-ts';
import { ordinary } from './addresses.ts';
import { letThrough } from './filter.ts';
import { addressKey, number } from './layout.ts';
import type { ServiceAddressRow, ServiceObjectRow } from './types.ts';

export function serviceAddressKey({ address, cluster }: ServiceAddressRow): string {
  return keys.join(address, cluster === true ? 'cluster' : 'other');
}

export function deriveServiceAddresses(
  db: StateDB,
  objects: Table<ServiceObjectRow>,
  into: Table<ServiceAddressRow>,
): Derivation {
  return derive(db, {
    name: into.name,
    into,
    inputs: [objects],
    fn: ({ clusterAddresses, externalAddresses = [], balancerAddresses = [] }): ServiceAddressRow[] => {
      const cluster = new Set(ordinary(clusterAddresses));
      const all = new Set([...cluster, ...ordinary([...externalAddresses, ...balancerAddresses])]);
      return Array.from(all, (address) => ({ address, ...(cluster.has(address) ? { cluster: true } : {}) }));
    },
  });
}

export class ServiceAddressOperations implements Operations<ServiceAddressRow> {
  readonly #map: BpfMap;
  readonly #filter: BpfMap;

  constructor(map: BpfMap, filter: BpfMap) {
    this.#map = map;
    this.#filter = filter;
  }

  update({ address, cluster }: ServiceAddressRow): void {
    letThrough(this.#filter, address);
    if (cluster === true) this.#map.update(addressKey.encode(address), number.encode(1));
  }

  delete({ address, cluster }: ServiceAddressRow): void {
    if (cluster === true) this.#map.delete(addressKey.encode(address));
  }

  prune(rows: Iterable<ServiceAddressRow>): void {
    const wanted = new Set(Array.from(rows).flatMap(({ address, cluster }) => (cluster === true ? [address] : [])));
    for (const key of [...this.#map.keys()]) if (!wanted.has(addressKey.decode(key))) this.#map.delete(key);
  }
}
