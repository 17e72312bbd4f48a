import { parseAddress } from '@weir/net';
import { keys } from '@weir/statedb';
import type { Backend, EndpointSliceRow, Frontend, ServiceObjectRow, ServicePort, SliceEndpoint } from './types.ts';

/** Primary key of a frontend; all of one Service have the prefix `keys.join(service)`. */
export function frontendRowKey({
  service,
  portName,
  protocol,
  port,
  family,
}: Pick<Frontend, 'service' | 'portName' | 'protocol' | 'port' | 'family'>): string {
  return keys.join(service, portName, protocol, String(port), String(family));
}

/** What a Service and its slices come to: a frontend for each port and family. */
export function frontendsOf(object: ServiceObjectRow, slices: readonly EndpointSliceRow[]): Frontend[] {
  const { namespace, name, clusterAddresses, ports, affinitySeconds, publishNotReady } = object;
  const service = `${namespace}/${name}`;
  return ([4, 6] as const).flatMap((family) => {
    const addresses = clusterAddresses.filter((address) => familyOf(address) === family);
    if (addresses.length === 0) return [];
    return ports.map((port) => ({
      service,
      portName: port.name,
      protocol: port.protocol,
      family,
      port: port.port,
      addresses,
      ...(affinitySeconds === undefined ? {} : { affinitySeconds }),
      backends: backendsOf(port, slices, family, publishNotReady),
    }));
  });
}

/** Who answers: those that are ready or, where none is, those that still serve while they end. */
function backendsOf(
  { name, protocol }: ServicePort,
  slices: readonly EndpointSliceRow[],
  family: 4 | 6,
  publishNotReady: boolean,
): Backend[] {
  const of = (usable: (endpoint: SliceEndpoint) => boolean): Backend[] => {
    const found = new Map<string, Backend>();
    for (const slice of slices) {
      const port = slice.ports.find((each) => each.name === name && each.protocol === protocol)?.port;
      if (port === undefined) continue;
      for (const endpoint of slice.endpoints) {
        if (!usable(endpoint)) continue;
        for (const address of endpoint.addresses)
          if (familyOf(address) === family) found.set(`${address} ${port}`, { address, port });
      }
    }
    return [...found.entries()].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, backend]) => backend);
  };
  const ready = of((endpoint) => endpoint.ready || publishNotReady);
  return ready.length > 0 ? ready : of(({ serving, terminating }) => serving && terminating);
}

function familyOf(address: string): 4 | 6 | undefined {
  try {
    return parseAddress(address).family;
  } catch {
    return undefined;
  }
}
