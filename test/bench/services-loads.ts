/** Services of a size, as rows of the input tables. */
import type { StateDB } from '@weir/statedb';
import type { ServiceTables } from '../../node-agent/services/services.ts';
import type { EndpointSliceRow, ServiceObjectRow } from '../../node-agent/services/types.ts';

const PORTS = [{ name: 'web', protocol: 'UDP', port: 80 }] as const;

/** Cluster address of a Service. */
export function addressOf(service: number): string {
  return `10.${96 + (service >> 16)}.${(service >> 8) & 255}.${service & 255}`;
}

export function objectOf(service: number): ServiceObjectRow {
  const ports = [...PORTS];
  const clusterAddresses = [addressOf(service)];
  return { namespace: 'ns', name: `s${service}`, clusterAddresses, ports, publishNotReady: false };
}

export function sliceOf(service: number, addresses: readonly string[]): EndpointSliceRow {
  const name = `s${service}`;
  const state = { ready: true, serving: true, terminating: false, node: 'n1' };
  const endpoints = addresses.map((address) => ({ addresses: [address], ...state }));
  return { namespace: 'ns', name, service: `ns/${name}`, endpoints, ports: [{ ...PORTS[0], port: 8080 }] };
}

/** Distinct for each `shift` below 128. */
export function backendsOf(service: number, count: number, shift = 0): string[] {
  const address = (at: number): string => `10.${at + (at === 0 ? shift : 0)}.${(service >> 8) & 255}.${service & 255}`;
  return Array.from({ length: count }, (_, at) => address(at));
}

/** `services` of them, each with what `backends` says. */
export function fill(
  db: StateDB,
  { objects, slices }: ServiceTables,
  services: number,
  backends: (service: number) => readonly string[],
): void {
  db.write([objects, slices], (txn) => {
    for (let service = 0; service < services; service += 1) {
      txn.upsert(objects, objectOf(service));
      txn.upsert(slices, sliceOf(service, backends(service)));
    }
  });
}
