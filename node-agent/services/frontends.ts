import { keys } from '@weir/statedb';
import { familyOf } from './addresses.ts';
import { type Candidate, candidatesOf, chosen, type Place } from './backends.ts';
import { type Claim, claimsOf } from './claims.ts';
import type { EndpointSliceRow, Frontend, FrontendKind, Scope, ServiceObjectRow, ServicePort } from './types.ts';

/** Primary key of a frontend; all of one Service have the prefix `keys.join(service)`. */
export function frontendRowKey(
  row: Pick<Frontend, 'service' | 'portName' | 'protocol' | 'port' | 'family' | 'kind' | 'scope'>,
): string {
  const { service, portName, protocol, port, family, kind, scope } = row;
  return keys.join(service, portName, protocol, String(port), String(family), kind, scope);
}

/** What a Service and its slices come to on the node of `place`. `taken`: another Service has this address and port. */
export function frontendsOf(
  object: ServiceObjectRow,
  slices: readonly EndpointSliceRow[],
  place: Place,
  taken: (claim: Claim) => boolean = () => false,
): Frontend[] {
  const claims = claimsOf(object).filter((claim) => !taken(claim));
  return object.ports.flatMap((port) =>
    ([4, 6] as const).flatMap((family) => {
      const own = claims.filter((claim) => claim.of === port && familyOf(claim.address) === family);
      if (own.length === 0) return [];
      const candidates = candidatesOf(port, slices, family);
      return [...Map.groupBy(own, ({ kind }) => kind)].flatMap(([kind, those]) =>
        scopesOf(object, kind).map((scope) => frontend(object, port, those, scope, family, candidates, place)),
      );
    }),
  );
}

function scopesOf({ externalPolicy }: ServiceObjectRow, kind: FrontendKind): readonly Scope[] {
  return kind !== 'ClusterIP' && externalPolicy === 'Local' ? ['cluster', 'local'] : ['cluster'];
}

function frontend(
  object: ServiceObjectRow,
  port: ServicePort,
  claims: readonly Claim[],
  scope: Scope,
  family: 4 | 6,
  candidates: readonly Candidate[],
  place: Place,
): Frontend {
  const { namespace, name, affinitySeconds, internalPolicy = 'Cluster', externalPolicy = 'Cluster' } = object;
  const { kind = 'ClusterIP', port: number = port.port } = claims[0] ?? {};
  const local = scope === 'local' || (kind === 'ClusterIP' && internalPolicy === 'Local');
  const { backends, elsewhere } = chosen(candidates, place, { local, publishNotReady: object.publishNotReady });
  const ranges = kind === 'LoadBalancer' ? object.sourceRanges : undefined;
  return {
    ...{ service: `${namespace}/${name}`, portName: port.name, protocol: port.protocol, family, kind, scope },
    ...{ port: number, addresses: claims.map(({ address }) => address) },
    ...(affinitySeconds === undefined ? {} : { affinitySeconds }),
    ...{ internalPolicy, externalPolicy },
    ...(ranges === undefined ? {} : { sourceRanges: ranges.filter((range) => familyOf(range) === family) }),
    ...(elsewhere ? { elsewhere } : {}),
    backends,
  };
}
