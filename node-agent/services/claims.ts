/** Who is reached at an address and port that several Services claim. */
import { keys } from '@weir/statedb';
import { familyOf } from './addresses.ts';
import type { EndpointSliceRow, FrontendKind, Protocol, ServiceObjectRow, ServicePort } from './types.ts';

/** NodePorts are reached at every address of a node. */
const EVERY_NODE = { 4: '0.0.0.0', 6: '::' } as const;

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

/** Each address and port once, in the families of the Service. */
export function claimsOf(object: ServiceObjectRow): Claim[] {
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
  return [...claims.values()];
}

/** Whether whoever may write a Service may claim it. */
export function isAnybodys({ kind }: Claim): boolean {
  return kind === 'LoadBalancer' || kind === 'ExternalIP';
}

/** Whether the slices have an endpoint at the claim's very address and port. */
export function isAnsweredBy({ address, port, protocol }: Claim, slices: readonly EndpointSliceRow[]): boolean {
  return slices.some(
    ({ endpoints, ports }) =>
      ports.some((each) => each.port === port && each.protocol === protocol) &&
      endpoints.some(({ addresses }) => addresses.includes(address)),
  );
}

/** Key: `rank`. Of those with one `key` the first has it. */
export interface ClaimRow {
  readonly rank: string;
  /** As `claimKey` makes it. */
  readonly key: string;
  /** `namespace/name`. */
  readonly service: string;
}

/** Who has an address and port. Key: `key`. */
export type ClaimOwnerRow = Omit<ClaimRow, 'rank'>;

/** By the kind of the claim, then the older Service first, then by name. */
export function claimRows(object: ServiceObjectRow): ClaimRow[] {
  const { namespace, name, created = '' } = object;
  const service = `${namespace}/${name}`;
  return claimsOf(object).map((claim) => {
    const key = claimKey(claim);
    return { rank: keys.join(key, String(ORDER.indexOf(claim.kind)), created, service), key, service };
  });
}
