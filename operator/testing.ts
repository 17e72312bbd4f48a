/** Test helper: objects that users and nodes write. */
import type { CiliumPolicyObject, KubeNode, Namespace, NetworkPolicyObject, NodePolicyStatus, Pod } from '@weir/kube';

export const namespace = (name: string, labels: Record<string, string> = {}): Namespace => ({
  apiVersion: 'v1',
  kind: 'Namespace',
  metadata: { name, labels },
});

export const node = (
  name: string,
  ready = 'True',
  more: {
    readonly podCIDRs?: readonly string[];
    readonly addresses?: readonly string[];
    readonly created?: string;
  } = {},
): KubeNode => ({
  apiVersion: 'v1',
  kind: 'Node',
  metadata: { name, ...(more.created === undefined ? {} : { creationTimestamp: more.created }) },
  ...(more.podCIDRs === undefined ? {} : { spec: { podCIDR: more.podCIDRs[0] ?? '', podCIDRs: more.podCIDRs } }),
  status: {
    conditions: [{ type: 'Ready', status: ready }],
    ...(more.addresses === undefined
      ? {}
      : { addresses: more.addresses.map((address) => ({ type: 'InternalIP', address })) }),
  },
});

export function pod(
  where: string,
  labels: Record<string, string>,
  more: {
    readonly uid?: string;
    readonly ip?: string;
    readonly node?: string;
    readonly hostNetwork?: boolean;
    /** It mirrors a static pod, or says so. */
    readonly mirror?: boolean;
    readonly phase?: string;
    readonly terminating?: boolean;
    readonly ports?: readonly { readonly name?: string; readonly containerPort: number; readonly protocol?: string }[];
  } = {},
): Pod {
  const [ns = '', name = ''] = where.split('/');
  return {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: {
      namespace: ns,
      name,
      labels,
      ...(more.uid === undefined ? {} : { uid: more.uid }),
      ...(more.mirror === true ? { annotations: { 'kubernetes.io/config.mirror': 'hash' } } : {}),
      ...(more.terminating === true ? { deletionTimestamp: '2026-01-01T00:00:00Z' } : {}),
    },
    spec: {
      containers: [
        { name: 'c', ...({ image: 'i' } as object), ...(more.ports === undefined ? {} : { ports: more.ports }) },
      ],
      ...(more.node === undefined ? {} : { nodeName: more.node }),
      ...(more.hostNetwork === undefined ? {} : { hostNetwork: more.hostNetwork }),
    },
    status: {
      phase: more.phase ?? 'Running',
      ...(more.ip === undefined ? {} : { podIP: more.ip, podIPs: [{ ip: more.ip }], hostIP: '192.0.2.1' }),
    },
  };
}

export const cnp = (where: string, spec: object): CiliumPolicyObject => {
  const [ns = '', name = ''] = where.split('/');
  return { apiVersion: 'cilium.io/v2', kind: 'CiliumNetworkPolicy', metadata: { namespace: ns, name }, spec };
};

/** A NetworkPolicy of networking.k8s.io/v1. */
export const knp = (where: string, spec: object): NetworkPolicyObject => {
  const [ns = '', name = ''] = where.split('/');
  return { apiVersion: 'networking.k8s.io/v1', kind: 'NetworkPolicy', metadata: { namespace: ns, name }, spec };
};

export const ccnp = (name: string, spec: object): CiliumPolicyObject => ({
  apiVersion: 'cilium.io/v2',
  kind: 'CiliumClusterwideNetworkPolicy',
  metadata: { name },
  spec,
});

export const report = (name: string, status: Partial<NodePolicyStatus['status']>): NodePolicyStatus => ({
  apiVersion: 'weir.dev/v1alpha1',
  kind: 'NodePolicyStatus',
  metadata: { name },
  status: { revision: 1, counts: { endpoints: 0, policies: 0 }, failures: [], failureCount: 0, ...status },
});
