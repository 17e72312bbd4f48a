/** Rows of the input tables, from API objects: only what the derivation reads, so that other changes wake nobody. */
import type { CiliumPolicyObject, KubeNode, Namespace, NodePolicyStatus, Pod } from '@weir/kube';
import { policyKey } from './names.ts';
import type { NamespaceRow, NodeReportRow, NodeRow, PodRow, PolicyObjectKind, PolicyRow } from './types.ts';

export function policyRow(object: CiliumPolicyObject, kind: PolicyObjectKind): PolicyRow {
  const { name, namespace, uid = '', generation = 0 } = object.metadata;
  const { status: _status, metadata: _metadata, ...rest } = object;
  return {
    key: policyKey(kind, namespace, name),
    kind,
    ...(namespace === undefined ? {} : { namespace }),
    name,
    uid,
    generation,
    object: { ...rest, metadata: { name, ...(namespace === undefined ? {} : { namespace }) } },
  };
}

export function namespaceRow(object: Namespace): NamespaceRow {
  return { name: object.metadata.name, labels: object.metadata.labels ?? {} };
}

export function podRow(pod: Pod): PodRow {
  const { name, namespace = '', uid = '', labels = {}, deletionTimestamp } = pod.metadata;
  const ips = pod.status?.podIPs?.map(({ ip }) => ip) ?? [];
  const { phase, podIP, hostIP = '' } = pod.status ?? {};
  return {
    key: `${namespace}/${name}`,
    namespace,
    name,
    uid,
    labels,
    serviceAccount: pod.spec?.serviceAccountName,
    node: pod.spec?.nodeName,
    hostIP,
    hostNetwork: pod.spec?.hostNetwork === true,
    finished: phase === 'Succeeded' || phase === 'Failed',
    terminating: deletionTimestamp !== undefined,
    addresses: (ips.length > 0 ? ips : [podIP ?? '']).filter((ip) => ip !== ''),
    namedPorts: (pod.spec?.containers ?? []).flatMap((container) =>
      (container.ports ?? []).flatMap((port) =>
        port.name === undefined
          ? []
          : [{ name: port.name, port: port.containerPort, protocol: port.protocol ?? 'TCP' }],
      ),
    ),
  };
}

export function nodeRow(node: KubeNode): NodeRow {
  const ready = node.status?.conditions?.find((condition) => condition.type === 'Ready');
  return { name: node.metadata.name, live: ready === undefined || ready.status === 'True' };
}

export function nodeReportRow(object: NodePolicyStatus): NodeReportRow {
  const policies = Object.entries(object.status?.policies ?? {});
  return {
    node: object.metadata.name,
    generations: Object.fromEntries(policies.map(([uid, { generation }]) => [uid, generation])),
    failures: object.status?.failures ?? [],
  };
}
