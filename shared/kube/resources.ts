/** Where each kind that Weir uses is served. */
import type {
  CustomResourceDefinition,
  EndpointSlice,
  KubeEvent,
  KubeNode,
  KubeObject,
  Lease,
  Namespace,
  NetworkPolicyObject,
  Pod,
  Service,
} from './kubernetes-objects.ts';
import type { Resource } from './types.ts';
import type {
  CiliumCidrGroupObject,
  CiliumEndpoint,
  CiliumEndpointSlice,
  CiliumIdentity,
  CiliumPolicyObject,
  NodePolicyStatus,
  PeerSet,
  ResolvedPolicyObject,
} from './weir-objects.ts';

function resource<T extends KubeObject>(
  group: string,
  version: string,
  kind: string,
  plural: string,
  namespaced: boolean,
): Resource<T> {
  return Object.freeze({ group, version, kind, plural, namespaced });
}

export const resources = Object.freeze({
  CiliumNetworkPolicy: resource<CiliumPolicyObject>(
    'cilium.io',
    'v2',
    'CiliumNetworkPolicy',
    'ciliumnetworkpolicies',
    true,
  ),
  CiliumClusterwideNetworkPolicy: resource<CiliumPolicyObject>(
    'cilium.io',
    'v2',
    'CiliumClusterwideNetworkPolicy',
    'ciliumclusterwidenetworkpolicies',
    false,
  ),
  NetworkPolicy: resource<NetworkPolicyObject>('networking.k8s.io', 'v1', 'NetworkPolicy', 'networkpolicies', true),
  CiliumCIDRGroup: resource<CiliumCidrGroupObject>('cilium.io', 'v2', 'CiliumCIDRGroup', 'ciliumcidrgroups', false),
  CiliumIdentity: resource<CiliumIdentity>('cilium.io', 'v2', 'CiliumIdentity', 'ciliumidentities', false),
  CiliumEndpoint: resource<CiliumEndpoint>('cilium.io', 'v2', 'CiliumEndpoint', 'ciliumendpoints', true),
  CiliumEndpointSlice: resource<CiliumEndpointSlice>(
    'cilium.io',
    'v2alpha1',
    'CiliumEndpointSlice',
    'ciliumendpointslices',
    false,
  ),
  ResolvedPolicy: resource<ResolvedPolicyObject>('weir.dev', 'v1alpha1', 'ResolvedPolicy', 'resolvedpolicies', false),
  PeerSet: resource<PeerSet>('weir.dev', 'v1alpha1', 'PeerSet', 'peersets', false),
  NodePolicyStatus: resource<NodePolicyStatus>('weir.dev', 'v1alpha1', 'NodePolicyStatus', 'nodepolicystatuses', false),
  Pod: resource<Pod>('', 'v1', 'Pod', 'pods', true),
  Namespace: resource<Namespace>('', 'v1', 'Namespace', 'namespaces', false),
  KubeNode: resource<KubeNode>('', 'v1', 'Node', 'nodes', false),
  EndpointSlice: resource<EndpointSlice>('discovery.k8s.io', 'v1', 'EndpointSlice', 'endpointslices', true),
  Service: resource<Service>('', 'v1', 'Service', 'services', true),
  Lease: resource<Lease>('coordination.k8s.io', 'v1', 'Lease', 'leases', true),
  CustomResourceDefinition: resource<CustomResourceDefinition>(
    'apiextensions.k8s.io',
    'v1',
    'CustomResourceDefinition',
    'customresourcedefinitions',
    false,
  ),
  Event: resource<KubeEvent>('', 'v1', 'Event', 'events', true),
  DaemonSet: resource<KubeObject>('apps', 'v1', 'DaemonSet', 'daemonsets', true),
  Deployment: resource<KubeObject>('apps', 'v1', 'Deployment', 'deployments', true),
});

/** `v1`, `cilium.io/v2`. */
export function apiVersionOf(resource: Resource<KubeObject>): string {
  return resource.group === '' ? resource.version : `${resource.group}/${resource.version}`;
}

/** URL path of a collection, one object, or its subresource. Without a namespace: all namespaces. */
export function pathOf(
  resource: Resource<KubeObject>,
  at: { readonly namespace?: string | undefined; readonly name?: string; readonly subresource?: string } = {},
): string {
  const root = resource.group === '' ? `/api/${resource.version}` : `/apis/${resource.group}/${resource.version}`;
  const parts = [root];
  if (resource.namespaced && at.namespace !== undefined) {
    parts.push('namespaces', encodeURIComponent(at.namespace));
  }
  parts.push(resource.plural);
  if (at.name !== undefined) parts.push(encodeURIComponent(at.name));
  if (at.subresource !== undefined) parts.push(at.subresource);
  return parts.join('/');
}

/** `pods/ns/name`, `nodes/name`: for messages and logs. */
export function describe(resource: Resource<KubeObject>, name?: string, namespace?: string): string {
  return [resource.plural, namespace, name].filter((part) => part !== undefined && part !== '').join('/');
}
