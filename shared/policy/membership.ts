import { isLocalCidr, plainNode, RESERVED_ID, scopeOf } from '@weir/identity';
import { type Prefix, parsePrefix, prefixContains } from '@weir/net';
import { UnknownPeerSetError } from './errors.ts';
import type { Entity, PeerIdentity, PeerRef, PeerSetView } from './types.ts';

const ANY_V4: Prefix = { family: 4, bytes: new Uint8Array(4), bits: 0 };
const ANY_V6: Prefix = { family: 6, bytes: new Uint8Array(16), bits: 0 };

/** In the cluster by their reserved label (spec 3.2). */
const CLUSTER_RESERVED: readonly number[] = [
  RESERVED_ID.host,
  RESERVED_ID['remote-node'],
  RESERVED_ID.init,
  RESERVED_ID.ingress,
  RESERVED_ID.health,
  RESERVED_ID.unmanaged,
  RESERVED_ID['kube-apiserver'],
];

/**
 * Whether an identity belongs to a peer of a rule (spec 3). Identity 0 belongs to `all` only: what an unknown peer may do is
 * the compiler's rule, not a membership.
 * @throws UnknownPeerSetError when the view does not know the peer set
 */
export function membership(peer: PeerRef, identity: PeerIdentity, peerSets: PeerSetView): boolean {
  if ('fqdn' in peer) return identity.names?.includes(peer.fqdn) === true;
  if (identity.names !== undefined) return false;
  if ('entity' in peer) return entityHas(peer.entity, identity);
  if ('cidr' in peer) {
    const { address } = identity;
    const prefix =
      peer.everyone !== true ? outsidePrefix(identity) : address === undefined ? undefined : parsePrefix(address);
    if (prefix === undefined || !prefixContains(parsePrefix(peer.cidr), prefix)) return false;
    return !(peer.except ?? []).some((except) => prefixContains(parsePrefix(except), prefix));
  }
  const members = peerSets.identities(peer.peerSet);
  if (members === undefined) throw new UnknownPeerSetError(peer.peerSet, 'a rule');
  for (const id of members) if (id === identity.id) return true;
  return false;
}

/** Table of spec 3.2 over numbers. */
export function entityHas(entity: Entity, identity: PeerIdentity): boolean {
  const id = plainNode(identity.id);
  const scope = scopeOf(id);
  switch (entity) {
    case 'all':
      return true;
    case 'none':
      return false;
    case 'world':
      return scope === 'world';
    case 'world-ipv4':
      return outsidePrefix(identity)?.family === 4;
    case 'world-ipv6':
      return outsidePrefix(identity)?.family === 6;
    case 'cluster':
      return scope === 'pod' || CLUSTER_RESERVED.includes(id) || identity.kubeApiserver === true;
    case 'kube-apiserver':
      return id === RESERVED_ID['kube-apiserver'] || identity.kubeApiserver === true;
    case 'remote-node':
      return id === RESERVED_ID['remote-node'] || id === RESERVED_ID['kube-apiserver'];
    case 'host':
    case 'ingress':
    case 'health':
    case 'init':
    case 'unmanaged':
      return id === RESERVED_ID[entity];
  }
}

/**
 * The addresses that an outside identity stands for: its CIDR, or a whole family for the world identities. Identity 2 is the
 * world of a single-stack cluster, which is IPv4 here. Undefined for pods, nodes and all that is no outside address.
 */
export function outsidePrefix(identity: PeerIdentity): Prefix | undefined {
  if (isLocalCidr(identity.id)) return identity.cidr === undefined ? undefined : parsePrefix(identity.cidr);
  if (identity.id === RESERVED_ID.world || identity.id === RESERVED_ID['world-ipv4']) return ANY_V4;
  if (identity.id === RESERVED_ID['world-ipv6']) return ANY_V6;
  return undefined;
}
