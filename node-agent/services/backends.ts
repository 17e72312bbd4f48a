/** Which endpoints of a Service answer on a node. */
import { familyOf } from './addresses.ts';
import type { Backend, EndpointSliceRow, ServicePort, SliceEndpoint } from './types.ts';

/** The node that translates. */
export interface Place {
  readonly node: string;
  readonly zone?: string;
}

/** An endpoint as it would answer one port. */
export interface Candidate {
  readonly address: string;
  readonly port: number;
  readonly endpoint: SliceEndpoint;
}

/** Who may answer, at any node and in any state. */
export function candidatesOf(
  { name, protocol }: ServicePort,
  slices: readonly EndpointSliceRow[],
  family: 4 | 6,
): Candidate[] {
  const found: Candidate[] = [];
  for (const slice of slices) {
    const port = slice.ports.find((each) => each.name === name && each.protocol === protocol)?.port;
    if (port === undefined) continue;
    for (const endpoint of slice.endpoints)
      for (const address of endpoint.addresses)
        if (familyOf(address) === family) found.push({ address, port, endpoint });
  }
  return found;
}

/**
 * Those that are ready or, where none is, those that still serve while they end; of all nodes or, with `local`, of this one. Hints are followed
 * where all that are ready have one and one is meant for this place. `elsewhere`: there would be backends on other nodes.
 */
export function chosen(
  candidates: readonly Candidate[],
  place: Place,
  { local, publishNotReady }: { readonly local: boolean; readonly publishNotReady: boolean },
): { readonly backends: Backend[]; readonly elsewhere?: true } {
  const usable = (some: readonly Candidate[]): readonly Candidate[] => {
    const ready = some.filter(({ endpoint }) => endpoint.ready || publishNotReady);
    if (ready.length > 0) return local ? ready : hinted(ready, place);
    return some.filter(({ endpoint: { serving, terminating } }) => serving && terminating);
  };
  const here = local ? candidates.filter(({ endpoint }) => endpoint.node === place.node) : candidates;
  const backends = sorted(usable(here));
  return backends.length === 0 && local && usable(candidates).length > 0 ? { backends, elsewhere: true } : { backends };
}

function hinted(ready: readonly Candidate[], { node, zone }: Place): readonly Candidate[] {
  const narrowed = (hints: (endpoint: SliceEndpoint) => readonly string[] | undefined, here: string | undefined) => {
    if (here === undefined || ready.some(({ endpoint }) => (hints(endpoint) ?? []).length === 0)) return undefined;
    const near = ready.filter(({ endpoint }) => hints(endpoint)?.includes(here));
    return near.length > 0 ? near : undefined;
  };
  return narrowed(({ nodes }) => nodes, node) ?? narrowed(({ zones }) => zones, zone) ?? ready;
}

/** Each address and port once. */
function sorted(candidates: readonly Candidate[]): Backend[] {
  const found = new Map<string, Backend>();
  for (const { address, port, endpoint } of candidates) {
    const state = endpoint.ready || !endpoint.terminating ? 'active' : 'terminating';
    const node = endpoint.node === undefined ? {} : { node: endpoint.node };
    found.set(`${address} ${port}`, { address, port, ...node, state });
  }
  return [...found.entries()].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, backend]) => backend);
}
