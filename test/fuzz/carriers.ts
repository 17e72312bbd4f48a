/** Plain objects that stand in the API server for hostile ones. */
import type { KubeObject } from '@weir/kube';
import { apiVersionOf } from '@weir/kube';
import type { Hostile } from './hostile.ts';
import { NODES, TAKEN } from './story.ts';

const container = { name: 'c', image: 'i' };
const template = { metadata: { labels: { a: 'b' } }, spec: { containers: [container] } };
const workload = {
  metadata: { labels: { 'k8s-app': 'cilium', 'io.cilium/app': 'operator', name: 'cilium-operator' } },
  spec: { selector: { matchLabels: { a: 'b' } }, template },
};

/** Valid, and another version of itself for each `count`. */
const PLAIN: Readonly<Record<string, (count: number) => Readonly<Record<string, object | string>>>> = {
  CiliumNetworkPolicy: (count) => ({ spec: { endpointSelector: {}, description: `${count}` } }),
  CiliumClusterwideNetworkPolicy: (count) => ({ spec: { endpointSelector: {}, description: `${count}` } }),
  NetworkPolicy: (count) => ({ spec: { podSelector: { matchLabels: { count: `${count}` } } } }),
  Service: () => ({ spec: { ports: [{ port: 80, protocol: 'TCP' }], selector: { a: 'b' } } }),
  EndpointSlice: () => ({ addressType: 'IPv4', endpoints: [], ports: [] }),
  DaemonSet: () => workload,
  Deployment: () => workload,
  CiliumIdentity: () => ({ 'security-labels': {} }),
  PeerSet: () => ({ spec: { hash: '', selector: { requirements: [] }, identities: [], slice: 0, slices: 1 } }),
  ResolvedPolicy: () => ({
    spec: { source: { kind: 'NetworkPolicy', namespace: 'default', name: 'x', uid: 'x', generation: 1 }, rules: [] },
  }),
  CiliumEndpointSlice: () => ({ namespace: 'default', endpoints: [] }),
};

/** What the API server holds of the hostile object. `count`: of the version. */
export function carrier({ kind, name, namespace, body }: Hostile, count: number): KubeObject {
  const { metadata = {}, ...rest } = (PLAIN[kind.resource.kind]?.(count) ?? {}) as Readonly<Record<string, object>>;
  return {
    ...(kind.resource.kind === 'Pod' ? { spec: { containers: [container], ...placeOf(body) } } : rest),
    ...touched({ kind, name, ...(namespace === undefined ? {} : { namespace }) }, count, metadata),
  };
}

/** A change that says nothing: whoever watches the object is told of it again. */
export function touched(
  { kind, name, namespace }: Pick<Hostile, 'kind' | 'name' | 'namespace'>,
  count: number,
  metadata: object = {},
): KubeObject {
  return {
    apiVersion: apiVersionOf(kind.resource),
    kind: kind.resource.kind,
    metadata: {
      ...metadata,
      name,
      ...(namespace === undefined ? {} : { namespace }),
      annotations: { 'example.com/version': `${count}` },
    },
  };
}

/** Agents ask for the pods of their node. */
function placeOf(body: Hostile['body']): { readonly nodeName?: string } {
  const nodeName = (body.spec as { readonly nodeName?: unknown } | null | undefined)?.nodeName;
  const known = [...NODES, TAKEN].find((node) => node === nodeName);
  return known === undefined ? {} : { nodeName: known };
}
