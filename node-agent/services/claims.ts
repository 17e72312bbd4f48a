/** Who is reached at an address and port that several Services claim. */
import { keys } from '@weir/statedb';
import { familyOf } from './addresses.ts';
import type { FrontendKind, Protocol, ServiceObjectRow, ServicePort } from './types.ts';

/** NodePorts are reached at every address of a node. */
export const EVERY_NODE = { 4: '0.0.0.0', 6: '::' } as const;

/** An address at which a Service is to be reached. */
export interface Claim {
  readonly kind: FrontendKind;
  readonly address: string;
  readonly port: number;
  readonly protocol: Protocol;
  /** The port of the Service. */
  readonly of: ServicePort;
}

/** The API server gives out cluster addresses and node ports; the others anybody may write who may write a Service. */
const ORDER: readonly FrontendKind[] = ['ClusterIP', 'NodePort', 'LoadBalancer', 'ExternalIP'];

export function claimKey({ address, port, protocol }: Pick<Claim, 'address' | 'port' | 'protocol'>): string {
  return keys.join(address, String(port), protocol);
}

/** Of rows that were asked for: each is asked once for every claim of every other that shares one. */
const CLAIMS = new WeakMap<ServiceObjectRow, ReadonlyMap<string, Claim>>();

/** Each address and port once, in the families of the Service. */
export function claimsOf(object: ServiceObjectRow): Claim[] {
  return [...claimsByKey(object).values()];
}

function claimsByKey(object: ServiceObjectRow): ReadonlyMap<string, Claim> {
  const before = CLAIMS.get(object);
  if (before !== undefined) return before;
  const claims = readClaims(object);
  CLAIMS.set(object, claims);
  return claims;
}

function readClaims(object: ServiceObjectRow): ReadonlyMap<string, Claim> {
  const { clusterAddresses, externalAddresses = [], balancerAddresses = [], ports } = object;
  const claims = new Map<string, Claim>();
  const add = (claim: Claim): void => {
    const key = claimKey(claim);
    if (!claims.has(key)) claims.set(key, claim);
  };
  const families = new Set(clusterAddresses.map(familyOf));
  for (const of of ports) {
    const { protocol, port, nodePort } = of;
    const at = (kind: FrontendKind, addresses: readonly string[]): void => {
      for (const address of addresses) if (families.has(familyOf(address))) add({ kind, address, port, protocol, of });
    };
    at('ClusterIP', clusterAddresses);
    if (nodePort !== undefined)
      for (const family of [4, 6] as const)
        if (families.has(family)) add({ kind: 'NodePort', address: EVERY_NODE[family], port: nodePort, protocol, of });
    at('LoadBalancer', balancerAddresses);
    at('ExternalIP', externalAddresses);
  }
  return claims;
}

/** Whether `other` has what both claim: by the kind of the claim, then the older one, then the first by name. */
export function yields(
  claim: Claim,
  { namespace, name, created = '' }: ServiceObjectRow,
  other: ServiceObjectRow,
): boolean {
  const theirs = claimsByKey(other).get(claimKey(claim));
  if (theirs === undefined) return false;
  const by = ORDER.indexOf(theirs.kind) - ORDER.indexOf(claim.kind);
  if (by !== 0) return by < 0;
  const age = other.created ?? '';
  if (age !== created) return age < created;
  return `${other.namespace}/${other.name}` < `${namespace}/${name}`;
}
