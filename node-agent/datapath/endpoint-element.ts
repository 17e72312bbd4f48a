/** Between what an endpoint is to enforce and its element in the map of endpoints. */
import { ENDPOINT_FLAGS, type EndpointValue, endpointValue } from '@weir/bpf';
import { formatAddress, ipv4Of, ipv6Of, parseAddress } from '@weir/net';
import type { EndpointStateRow, KernelEndpoint, KernelEndpointRow } from '../tables.ts';

export function foundIn({
  id,
  ifindex,
  slot,
  flags,
  ipv4,
  ipv6 = new Uint8Array(16),
  identity,
  revision,
}: EndpointValue): KernelEndpoint {
  const enforced = {
    ingress: (flags & ENDPOINT_FLAGS.ingressEnforced) !== 0,
    egress: (flags & ENDPOINT_FLAGS.egressEnforced) !== 0,
  };
  // Without an address of a family the element has zeros there, and no source of the family is the endpoint's own.
  const addresses = [ipv4, ipv6].filter((bytes) => bytes.some((byte) => byte !== 0)).map(formatAddress);
  return { id, ifindex, addresses, identity, slot, revision, enforced };
}

export function elementOf(row: KernelEndpoint, { quarantined }: Pick<KernelEndpointRow, 'quarantined'>): Uint8Array {
  return endpointValue.encode({
    revision: row.revision,
    slot: row.slot,
    flags: flagsOf(row.enforced),
    ifindex: row.ifindex,
    ipv4: parseAddress(ipv4Of(row.addresses) ?? '0.0.0.0').bytes,
    ipv6: parseAddress(ipv6Of(row.addresses) ?? '::').bytes,
    identity: row.identity,
    id: row.id,
    quarantine: quarantined !== undefined,
  });
}

function flagsOf({ ingress, egress }: EndpointStateRow['enforced']): number {
  return (ingress ? ENDPOINT_FLAGS.ingressEnforced : 0) | (egress ? ENDPOINT_FLAGS.egressEnforced : 0);
}

/** Whether the kernel's element is this one. */
export function sameElement(there: Uint8Array | undefined, element: Uint8Array): boolean {
  return there !== undefined && Buffer.compare(there, element) === 0;
}
