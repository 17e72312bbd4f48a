/** Between what an endpoint is to enforce and its element in the map of endpoints. */
import { ENDPOINT_FLAGS, type EndpointValue, endpointValue } from '@weir/bpf';
import { formatAddress, parseAddress } from '@weir/net';
import type { EndpointStateRow, KernelEndpoint, KernelEndpointRow } from '../tables.ts';

export function foundIn({ id, ifindex, slot, flags, ipv4, identity, revision }: EndpointValue): KernelEndpoint {
  const enforced = {
    ingress: (flags & ENDPOINT_FLAGS.ingressEnforced) !== 0,
    egress: (flags & ENDPOINT_FLAGS.egressEnforced) !== 0,
  };
  return { id, ifindex, ipv4: formatAddress(ipv4), identity, slot, revision, enforced };
}

export function elementOf(row: KernelEndpoint, { quarantined }: Pick<KernelEndpointRow, 'quarantined'>): Uint8Array {
  return endpointValue.encode({
    revision: row.revision,
    slot: row.slot,
    flags: flagsOf(row.enforced),
    ifindex: row.ifindex,
    // Without an address no source is the endpoint's own.
    ipv4: parseAddress(row.ipv4 === '' ? '0.0.0.0' : row.ipv4).bytes,
    identity: row.identity,
    id: row.id,
    quarantine: quarantined !== undefined,
  });
}

function flagsOf({ ingress, egress }: EndpointStateRow['enforced']): number {
  return (ingress ? ENDPOINT_FLAGS.ingressEnforced : 0) | (egress ? ENDPOINT_FLAGS.egressEnforced : 0);
}
