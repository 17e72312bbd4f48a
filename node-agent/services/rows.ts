/** Services and EndpointSlices of the API to rows. What cannot be read of an object is left out of its row: its other ports and endpoints count. */
import { type EndpointSlice, itemsOf, type Service, textsIn } from '@weir/kube';
import { cidrs, ordinary } from './addresses.ts';
import type { EndpointSliceRow, Protocol, ServiceObjectRow, ServicePort, SliceEndpoint } from './types.ts';

/** The label by which a slice names its Service. */
const SERVICE_NAME = 'kubernetes.io/service-name';
/** What has one of these labels is left to another proxy, or to nobody (k8s.io/api, core/v1 and discovery/v1). */
const NOT_OURS = ['service.kubernetes.io/service-proxy-name', 'service.kubernetes.io/headless'] as const;
/** Kubernetes' own default. */
const AFFINITY_SECONDS = 10_800;

type Labels = Readonly<Record<string, unknown>> | undefined;

function isOurs(labels: Labels): boolean {
  return NOT_OURS.every((label) => labels?.[label] === undefined);
}

/** By primary key; empty for a Service without addresses (a headless one, or one by a name of DNS), and for another proxy's. */
export function serviceObjectParts({ metadata, spec = {}, status }: Service): ReadonlyMap<string, ServiceObjectRow> {
  const { namespace = '', name, creationTimestamp: created } = metadata;
  const clusterAddresses = ordinary(textsIn(itemsOf(spec.clusterIPs)));
  if (spec.type === 'ExternalName' || clusterAddresses.length === 0 || !isOurs(metadata.labels)) return new Map();
  const externalAddresses = ordinary(textsIn(itemsOf(spec.externalIPs)));
  const ingress = itemsOf(status?.loadBalancer?.ingress).filter((each) => each?.ipMode !== 'Proxy');
  const balancerAddresses = spec.type === 'LoadBalancer' ? ordinary(textsIn(ingress.map((each) => each?.ip))) : [];
  const ranges = textsIn(itemsOf(spec.loadBalancerSourceRanges));
  const affinitySeconds =
    spec.sessionAffinity === 'ClientIP'
      ? (spec.sessionAffinityConfig?.clientIP?.timeoutSeconds ?? AFFINITY_SECONDS)
      : undefined;
  const row: ServiceObjectRow = {
    ...{ namespace, name, clusterAddresses, ports: present(spec.ports).flatMap(portOf) },
    ...(created === undefined ? {} : { created }),
    ...(externalAddresses.length === 0 ? {} : { externalAddresses }),
    ...(balancerAddresses.length === 0 ? {} : { balancerAddresses }),
    ...(spec.type === 'LoadBalancer' && ranges.length > 0 ? { sourceRanges: cidrs(ranges) } : {}),
    ...(affinitySeconds === undefined ? {} : { affinitySeconds }),
    publishNotReady: spec.publishNotReadyAddresses === true,
    ...(spec.internalTrafficPolicy === 'Local' ? { internalPolicy: 'Local' } : {}),
    ...(spec.externalTrafficPolicy === 'Local' ? { externalPolicy: 'Local' } : {}),
    ...(asksForHealth(spec) && isPort(spec.healthCheckNodePort) ? { healthPort: spec.healthCheckNodePort } : {}),
  };
  return new Map([[`${namespace}/${name}`, row]]);
}

/** Load balancers ask each node only where the backends of other nodes do not serve. */
function asksForHealth({ type, externalTrafficPolicy }: NonNullable<Service['spec']>): boolean {
  return type === 'LoadBalancer' && externalTrafficPolicy === 'Local';
}

function portOf(each: NonNullable<NonNullable<Service['spec']>['ports']>[number]): ServicePort[] {
  const { name = '', protocol = 'TCP', port, nodePort } = each;
  if (!isProtocol(protocol) || !isPort(port)) return [];
  return [{ name, protocol, port, ...(isPort(nodePort) ? { nodePort } : {}) }];
}

/** By primary key; empty for a slice of no Service, and of a headless one. */
export function sliceParts(object: EndpointSlice): ReadonlyMap<string, EndpointSliceRow> {
  const { namespace = '', name, labels = {} } = object.metadata;
  const service = labels[SERVICE_NAME];
  if (service === undefined || service === '' || object.addressType === 'FQDN' || !isOurs(labels)) return new Map();
  const endpoints = present(object.endpoints).map((endpoint): SliceEndpoint => {
    const { addresses, conditions = {}, nodeName, hints } = endpoint;
    // As in the API: absent means true, except for terminating.
    const { ready = true, terminating = false } = conditions;
    return {
      // As the API says, only the first one means anything.
      addresses: ordinary(textsIn(itemsOf(addresses)).slice(0, 1)),
      ready,
      serving: conditions.serving ?? ready,
      terminating,
      ...(nodeName === undefined ? {} : { node: nodeName }),
      ...hintsOf('zones', hints?.forZones),
      ...hintsOf('nodes', hints?.forNodes),
    };
  });
  const ports = present(object.ports).flatMap(({ name: portName = '', protocol = 'TCP', port }) =>
    isProtocol(protocol) && isPort(port) ? [{ name: portName, protocol, port }] : [],
  );
  return new Map([[`${namespace}/${name}`, { namespace, name, service: `${namespace}/${service}`, endpoints, ports }]]);
}

function present<T>(list: readonly T[] | undefined): T[] {
  return itemsOf(list).filter((each) => each !== undefined && each !== null);
}

function hintsOf(
  to: 'zones' | 'nodes',
  hints: readonly { readonly name: string }[] | undefined,
): Partial<SliceEndpoint> {
  const names = textsIn(itemsOf(hints).map((hint) => hint?.name));
  return names.length === 0 ? {} : { [to]: names };
}

function isProtocol(text: string): text is Protocol {
  return text === 'TCP' || text === 'UDP' || text === 'SCTP';
}

function isPort(port: unknown): port is number {
  return typeof port === 'number' && Number.isInteger(port) && port > 0 && port < 65_536;
}
