import type { IdentityScope, NumericIdentity } from './types.ts';

/** First cluster-wide number that is allocated for a label set; 100..255 are well-known or given by the user. */
export const CLUSTER_FIRST = 256;
export const CLUSTER_LAST = 0xffff;
/** Local identities of CIDRs: numbers with the top byte 0x01, of meaning on one node only. */
export const CIDR_BASE = 0x01000000;
export const CIDR_LAST = 0x01ffffff;
/** Local identities of this node's own label sets that the operator has not numbered yet: top byte 0x03. */
export const LOCAL_ENDPOINT_BASE = 0x03000000;
export const LOCAL_ENDPOINT_LAST = 0x03ffffff;

const POD_FIRST = 100;

/**
 * What a number means when nothing else is known of it; the datapath derives the scope class from the same ranges.
 * pod: 100..65535 and top byte 0x03. world: 2, 9, 10 and top byte 0x01. reserved: 1, 3..8, 11. unknown: all others, 0 too.
 */
export function scopeOf(id: NumericIdentity): IdentityScope {
  if (id === 2 || id === 9 || id === 10 || isLocalCidr(id)) return 'world';
  if (id === 1 || (id >= 3 && id <= 8) || id === 11) return 'reserved';
  if ((id >= POD_FIRST && id <= CLUSTER_LAST) || (id >= LOCAL_ENDPOINT_BASE && id <= LOCAL_ENDPOINT_LAST)) return 'pod';
  return 'unknown';
}

/** Whether the number is a node-local identity of a CIDR. */
export function isLocalCidr(id: NumericIdentity): boolean {
  return id >= CIDR_BASE && id <= CIDR_LAST;
}
