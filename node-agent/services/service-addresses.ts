/** Cluster IPs into map `svc_addresses`. */
import type { Operations } from '@weir/reconciler';
import { type Derivation, derive, type StateDB, type Table } from '@weir/statedb';
import type { BpfMap } from 'libbpf-ts';
import { addressKey, number } from './layout.ts';
import type { ServiceAddressRow, ServiceObjectRow } from './types.ts';

export function deriveServiceAddresses(
  db: StateDB,
  objects: Table<ServiceObjectRow, 'claim'>,
  into: Table<ServiceAddressRow>,
): Derivation {
  return derive(db, {
    name: into.name,
    into,
    inputs: [objects],
    fn: ({ clusterAddresses }): ServiceAddressRow[] => clusterAddresses.map((address) => ({ address })),
  });
}

export class ServiceAddressOperations implements Operations<ServiceAddressRow> {
  readonly #map: BpfMap;

  constructor(map: BpfMap) {
    this.#map = map;
  }

  update({ address }: ServiceAddressRow): void {
    this.#map.update(addressKey.encode(address), number.encode(1));
  }

  delete({ address }: ServiceAddressRow): void {
    this.#map.delete(addressKey.encode(address));
  }

  prune(rows: Iterable<ServiceAddressRow>): void {
    const wanted = new Set(Array.from(rows, ({ address }) => address));
    for (const key of [...this.#map.keys()]) if (!wanted.has(addressKey.decode(key))) this.#map.delete(key);
  }
}
