/** Services and EndpointSlices of the API to rows. What cannot be read of an object is left out of its row: its other ports and endpoints count. */
import { type EndpointSlice, type Service, textsIn } from '@weir/kube';
import type { EndpointSliceRow, Protocol, ServiceObjectRow } from './types.ts';

/** The label by which a slice names its Service. */
const SERVICE_NAME = 'kubernetes.io/service-name';
/** Kubernetes' own default. */
const AFFINITY_SECONDS = 10_800;

/** By primary key; empty for a Service without addresses: a headless one, or one by a name of DNS. */
export function serviceObjectParts({ metadata, spec = {} }: Service): ReadonlyMap<string, ServiceObjectRow> {
  const { namespace = '', name } = metadata;
  const clusterAddresses = textsIn(spec.clusterIPs ?? []).filter((address) => address !== 'None' && address !== '');
  if (spec.type === 'ExternalName' || clusterAddresses.length === 0) return new Map();
  const ports = (spec.ports ?? []).flatMap(({ name: portName = '', protocol = 'TCP', port }) =>
    isProtocol(protocol) && isPort(port) ? [{ name: portName, protocol, port }] : [],
  );
  const affinitySeconds =
    spec.sessionAffinity === 'ClientIP'
      ? (spec.sessionAffinityConfig?.clientIP?.timeoutSeconds ?? AFFINITY_SECONDS)
      : undefined;
  return new Map([
    [
      `${namespace}/${name}`,
      {
        namespace,
        name,
        clusterAddresses,
        ports,
        ...(affinitySeconds === undefined ? {} : { affinitySeconds }),
        publishNotReady: spec.publishNotReadyAddresses === true,
      },
    ],
  ]);
}

/** By primary key; empty for a slice of no Service. */
export function sliceParts(object: EndpointSlice): ReadonlyMap<string, EndpointSliceRow> {
  const { namespace = '', name, labels = {} } = object.metadata;
  const service = labels[SERVICE_NAME];
  if (service === undefined || service === '' || object.addressType === 'FQDN') return new Map();
  const endpoints = (object.endpoints ?? []).map(({ addresses, conditions = {}, nodeName }) => {
    // As the API says: what is not told is true, but for ending.
    const { ready = true, terminating = false } = conditions;
    return {
      addresses: textsIn(addresses ?? []),
      ready,
      serving: conditions.serving ?? ready,
      terminating,
      ...(nodeName === undefined ? {} : { node: nodeName }),
    };
  });
  const ports = (object.ports ?? []).flatMap(({ name: portName = '', protocol = 'TCP', port }) =>
    isProtocol(protocol) && isPort(port) ? [{ name: portName, protocol, port }] : [],
  );
  return new Map([[`${namespace}/${name}`, { namespace, name, service: `${namespace}/${service}`, endpoints, ports }]]);
}

function isProtocol(text: string): text is Protocol {
  return text === 'TCP' || text === 'UDP' || text === 'SCTP';
}

function isPort(port: unknown): port is number {
  return typeof port === 'number' && Number.isInteger(port) && port > 0 && port < 65_536;
}
