/** The cluster that files describe: what verdicts depend on, beside policies. */
import { furtherAddresses, nodeAddresses, nodePodCidrs } from '@weir/kube/node-facts.ts';
import { podPorts } from '@weir/kube/pod-ports.ts';
import { itemsOf, textMapOf, textOf, textsIn } from '@weir/kube/shapes.ts';
import { podIdentityLabels } from '@weir/labels';
import {
  type CidrGroup,
  cidrGroupOf,
  cidrGroupView,
  type OracleEndpoint,
  type OracleNode,
  type OracleWorld,
  type Referents,
  type ServicePeers,
  type Stack,
  serviceView,
} from '@weir/policy';
import { isMap } from './metadata.ts';

type Json = Readonly<Record<string, unknown>>;

export interface FileWorld extends OracleWorld {
  /** By `namespace/name`: pods, and workloads of which no pod has the name. */
  readonly pods: ReadonlyMap<string, OracleEndpoint>;
  /** Pods in the network of their node, by `namespace/name`: the node's name. */
  readonly hostPods: ReadonlyMap<string, string>;
  /** What policies may refer to. */
  readonly referents: Partial<Referents>;
  /** `namespace/name` of the Service, by its own addresses. */
  readonly serviceAddresses: ReadonlyMap<string, string>;
  /** Namespaces of pods that no file describes: their labels are not known. */
  readonly unknownNamespaces: readonly string[];
}

/** Kinds whose pods are described by a template. */
const WORKLOADS = ['Deployment', 'StatefulSet', 'DaemonSet', 'ReplicaSet', 'ReplicationController', 'Job', 'CronJob'];
/** Phases of pods that have no address any more. */
const ENDED = ['Succeeded', 'Failed'];

/** @param objects of Kubernetes, other kinds too. @param cluster as `--cluster-name` of the operator has it */
export function worldOf(objects: readonly unknown[], cluster: string): FileWorld {
  const all = objects.filter(isMap);
  const of = (...kinds: readonly string[]): readonly Json[] =>
    all.filter(({ kind }) => kinds.some((each) => each === kind));
  const namespaces = new Map(of('Namespace').map((object) => [nameOf(object), labelsIn(object.metadata)]));
  const nodes = of('Node').map(nodeOf);
  const pods = new Map<string, OracleEndpoint>();
  const hostPods = new Map<string, string>();
  for (const { key, metadata, spec, status } of [...of('Pod').map(podIn), ...of(...WORKLOADS).map(templateIn)]) {
    if (pods.has(key) || hostPods.has(key)) continue;
    const [namespace = ''] = key.split('/');
    const node = textOf(spec.nodeName) ?? '';
    if (spec.hostNetwork === true) {
      hostPods.set(key, node);
      continue;
    }
    const labels = podIdentityLabels({
      namespace,
      namespaceLabels: { 'kubernetes.io/metadata.name': namespace, ...namespaces.get(namespace) },
      podLabels: labelsIn(metadata),
      serviceAccount: textOf(spec.serviceAccountName) ?? 'default',
      cluster,
    });
    const ended = typeof status.phase === 'string' && ENDED.includes(status.phase);
    const addresses = ended
      ? []
      : textsIn(itemsOf(listIn(status.podIPs)).map((each) => (isMap(each) ? each.ip : undefined)));
    pods.set(key, { name: key, labels, addresses, node, namedPorts: podPorts(spec).named });
  }
  const used = new Set([...pods.keys()].map((key) => key.split('/')[0] ?? ''));
  return {
    endpoints: [...pods.values()],
    nodes: withApiServers(nodes, of('EndpointSlice', 'Endpoints')),
    externalApiServers: apiServers(of('EndpointSlice', 'Endpoints')).filter(
      (address) => !nodes.some(({ addresses }) => addresses.includes(address)),
    ),
    pods,
    hostPods,
    referents: {
      services: serviceView(of('Service').map((service) => servicePeers(service, of('EndpointSlice')))),
      cidrGroups: cidrGroupView(of('CiliumCIDRGroup').map(cidrGroup)),
      stack: stackOf(of('Node')),
    },
    serviceAddresses: new Map(
      of('Service').flatMap((object) => ownAddresses(object).map((ip) => [ip, keyOf(object)] as const)),
    ),
    unknownNamespaces: [...used].filter((name) => !namespaces.has(name)).sort(),
  };
}

interface PodParts {
  readonly key: string;
  readonly metadata: unknown;
  readonly spec: Json;
  readonly status: Json;
}

function podIn(object: Json): PodParts {
  return { key: keyOf(object), metadata: object.metadata, spec: mapIn(object.spec), status: mapIn(object.status) };
}

function templateIn(object: Json): PodParts {
  const spec = mapIn(object.spec);
  const template = mapIn(object.kind === 'CronJob' ? mapIn(mapIn(spec.jobTemplate).spec).template : spec.template);
  return { key: keyOf(object), metadata: template.metadata, spec: mapIn(template.spec), status: {} };
}

function nodeOf(object: Json): OracleNode {
  const node = object as unknown as Parameters<typeof nodeAddresses>[0];
  const further = isMap(object.metadata) ? furtherAddresses(node) : [];
  return {
    name: nameOf(object),
    labels: labelsIn(object.metadata),
    addresses: [...new Set([...nodeAddresses(node).addresses, ...further])],
  };
}

function stackOf(nodes: readonly Json[]): Stack {
  const cidrs = nodes.flatMap((node) => nodePodCidrs(node as unknown as Parameters<typeof nodePodCidrs>[0]));
  const six = cidrs.filter((cidr) => cidr.includes(':')).length;
  if (cidrs.length === 0) return 'unknown';
  return six > 0 && six < cidrs.length ? 'dual' : 'single';
}

function withApiServers(nodes: readonly OracleNode[], slices: readonly Json[]): readonly OracleNode[] {
  const servers = apiServers(slices);
  return nodes.map((node) =>
    node.addresses.some((address) => servers.includes(address)) ? { ...node, kubeApiserver: true } : node,
  );
}

/** As API servers report them: the endpoints of Service default/kubernetes. */
function apiServers(slices: readonly Json[]): readonly string[] {
  return slices
    .filter((slice) => keyOf(slice) === 'default/kubernetes' || serviceOf(slice) === 'default/kubernetes')
    .flatMap((slice) => [
      ...addressesIn(slice.endpoints),
      ...itemsOf(listIn(slice.subsets)).flatMap((subset) =>
        textsIn(itemsOf(listIn(mapIn(subset).addresses)).map((each) => mapIn(each).ip)),
      ),
    ]);
}

/** What a Service stands for in `toServices`: as the operator has it. */
function servicePeers(object: Json, slices: readonly Json[]): ServicePeers {
  const spec = mapIn(object.spec);
  const [namespace = '', name = ''] = keyOf(object).split('/');
  const base = { namespace, name, labels: labelsIn(object.metadata) };
  const selector = textMapOf(mapIn(spec.selector));
  if (spec.type === 'ExternalName') return { ...base, addresses: [] };
  if (Object.keys(selector).length > 0) return { ...base, selector, addresses: [] };
  const own = slices.filter((slice) => serviceOf(slice) === keyOf(object));
  return { ...base, addresses: [...new Set(own.flatMap(({ endpoints }) => addressesIn(endpoints)))].sort() };
}

function cidrGroup(object: Json): CidrGroup {
  return cidrGroupOf(nameOf(object), labelsIn(object.metadata), object.spec);
}

function ownAddresses(service: Json): readonly string[] {
  const { clusterIPs, externalIPs } = mapIn(service.spec);
  const ingress = itemsOf(listIn(mapIn(mapIn(service.status).loadBalancer).ingress)).map((each) => mapIn(each).ip);
  return textsIn([...itemsOf(listIn(clusterIPs)), ...itemsOf(listIn(externalIPs)), ...ingress]).filter(
    (address) => address !== 'None',
  );
}

/** `namespace/name` of a slice's Service. */
function serviceOf(slice: Json): string {
  const service = labelsIn(slice.metadata)['kubernetes.io/service-name'] ?? '';
  return `${keyOf(slice).split('/')[0] ?? ''}/${service}`;
}

function addressesIn(endpoints: unknown): readonly string[] {
  return itemsOf(listIn(endpoints)).flatMap((each) => textsIn(itemsOf(listIn(mapIn(each).addresses))));
}

function keyOf(object: Json): string {
  return `${textOf(mapIn(object.metadata).namespace) ?? 'default'}/${nameOf(object)}`;
}

function nameOf(object: Json): string {
  return textOf(mapIn(object.metadata).name) ?? '';
}

function labelsIn(metadata: unknown): Readonly<Record<string, string>> {
  return textMapOf(mapIn(mapIn(metadata).labels));
}

function mapIn(value: unknown): Json {
  return isMap(value) ? value : {};
}

function listIn(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}
