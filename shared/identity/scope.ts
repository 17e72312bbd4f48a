import { RESERVED_ID } from './reserved.ts';
import type { IdentityScope, NumericIdentity } from './types.ts';

/** First cluster-wide number that is allocated for a label set; 100..255 are well-known or given by the user. */
export const CLUSTER_FIRST = 256;
export const CLUSTER_LAST = 0xffff;
/** Local identities of CIDRs: numbers with the top byte 0x01, of meaning on one node only. */
export const CIDR_BASE = 0x01000000;
export const CIDR_LAST = 0x01ffffff;
/** Local identities of other nodes that rules tell apart: top byte 0x02. */
export const NODE_BASE = 0x02000000;
export const NODE_LAST = 0x027fffff;
/** The same node at its addresses of an API server. */
const SERVES_API = 0x00800000;
/** Local identities of this node's own label sets that the operator has not numbered yet: top byte 0x03. */
export const LOCAL_ENDPOINT_BASE = 0x03000000;
export const LOCAL_ENDPOINT_LAST = 0x03ffffff;
/** Of sets of patterns that names of an address are of: no address has one of them alone. */
export const NAMES_BASE = 0x05000000;
export const NAMES_LAST = 0x05ffffff;

const POD_FIRST = 100;

/**
 * What a number means when nothing else is known of it; the datapath derives the scope class from the same ranges.
 * pod: 100..65535 and top byte 0x03. world: 2, 9, 10 and top byte 0x01. reserved: 1, 3..8, 11 and top byte 0x02. unknown: all others, 0 too.
 */
export function scopeOf(id: NumericIdentity): IdentityScope {
  if (id === 2 || id === 9 || id === 10 || isLocalCidr(id)) return 'world';
  if (id === 1 || (id >= 3 && id <= 8) || id === 11 || isNode(id)) return 'reserved';
  if ((id >= POD_FIRST && id <= CLUSTER_LAST) || (id >= LOCAL_ENDPOINT_BASE && id <= LOCAL_ENDPOINT_LAST)) return 'pod';
  return 'unknown';
}

/** Whether the number is a node-local identity of a CIDR. */
export function isLocalCidr(id: NumericIdentity): boolean {
  return id >= CIDR_BASE && id <= CIDR_LAST;
}

/** Whether the number is a node-local identity of another node. */
export function isNode(id: NumericIdentity): boolean {
  return id >= NODE_BASE && id < LOCAL_ENDPOINT_BASE;
}

/** The number of a node, or remote-node, at an address where an API server is. */
export function withApiServer(id: NumericIdentity): NumericIdentity {
  return isNode(id) ? id | SERVES_API : RESERVED_ID['kube-apiserver'];
}

/** The number of a node without regard to API servers; others are themselves. */
export function nodeNumber(id: NumericIdentity): NumericIdentity {
  return isNode(id) ? id & ~SERVES_API : id;
}

/** What a node is to rules that do not tell nodes apart: remote-node or kube-apiserver; others are themselves. */
export function plainNode(id: NumericIdentity): NumericIdentity {
  if (!isNode(id)) return id;
  return (id & SERVES_API) === 0 ? RESERVED_ID['remote-node'] : RESERVED_ID['kube-apiserver'];
}
