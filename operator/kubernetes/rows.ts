/** Rows of the input tables, from API objects: only what the derivation reads, so that other changes wake nobody. */
import {
  type KubeNode,
  type KubeObject,
  type Namespace,
  type NodePolicyStatus,
  nodeAddresses,
  nodePodCidrs,
  type Pod,
  type ResolvedPolicyObject,
} from '@weir/kube';
import { policyKey } from '../model/names.ts';
import type {
  NamespaceRow,
  NodeReportRow,
  NodeRow,
  PodPort,
  PodRow,
  PolicyObjectKind,
  PolicyRow,
  ResolvedVersionRow,
} from '../types.ts';
import { canonicalAddress, canonicalCidr } from './addresses.ts';

export function policyRow(object: KubeObject, kind: PolicyObjectKind): PolicyRow {
  const { name, namespace, uid = '', generation = 0 } = object.metadata;
  const { status: _status, metadata: _metadata, ...rest } = object as KubeObject & { readonly status?: unknown };
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

export function podKey({ metadata: { namespace = '', name } }: KubeObject): string {
  return `${namespace}/${name}`;
}

export function podRow(pod: Pod): PodRow {
  const { name, namespace = '', uid = '', labels = {}, deletionTimestamp } = pod.metadata;
  const ips = pod.status?.podIPs?.map(({ ip }) => ip) ?? [];
  const { phase, podIP, hostIP = '' } = pod.status ?? {};
  return {
    key: podKey(pod),
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
    addresses: podAddresses(ips.length > 0 ? ips : [podIP ?? '']),
    namedPorts: namedPorts(pod.spec),
  };
}

/** The first of each family: the API server takes no more. */
function podAddresses(texts: readonly string[]): string[] {
  const all = texts.flatMap(canonicalAddress);
  return [all.find((ip) => !ip.includes(':')) ?? [], all.find((ip) => ip.includes(':')) ?? []].flat();
}

/** The first of a name and protocol counts, containers before sidecars, as Kubernetes itself looks names up. */
function namedPorts(spec: Pod['spec']): PodPort[] {
  const { containers = [], initContainers = [] } = spec ?? {};
  const byName = new Map<string, PodPort>();
  for (const { ports = [] } of [...containers, ...initContainers.filter((c) => c.restartPolicy === 'Always')]) {
    for (const { name = '', containerPort: port, protocol = 'TCP' } of ports) {
      const key = `${protocol}/${name}`;
      if (name !== '' && !byName.has(key)) byName.set(key, { name, port, protocol });
    }
  }
  return [...byName.values()];
}

export function nodeRow(node: KubeNode): NodeRow {
  const ready = node.status?.conditions?.find((condition) => condition.type === 'Ready');
  const { name, uid = '', creationTimestamp: created = '' } = node.metadata;
  return {
    name,
    uid,
    live: ready === undefined || ready.status === 'True',
    created,
    addresses: nodeAddresses(node).flatMap(canonicalAddress),
    podCidrs: nodePodCidrs(node).flatMap(canonicalCidr),
  };
}

export function resolvedVersionRow({ metadata, spec }: ResolvedPolicyObject): ResolvedVersionRow {
  const { name, resourceVersion = '' } = metadata;
  const { uid, generation } = spec.source;
  return { name, uid, generation, version: resourceVersion };
}

export function nodeReportRow(object: NodePolicyStatus): NodeReportRow {
  const policies = Object.entries(object.status?.policies ?? {});
  const owners = (object.metadata.ownerReferences ?? []) as readonly {
    readonly kind?: string;
    readonly uid?: string;
  }[];
  return {
    node: object.metadata.name,
    nodeUid: owners.find((owner) => owner.kind === 'Node')?.uid,
    policyVersion: object.status?.policyVersion,
    generations: Object.fromEntries(policies.map(([uid, { generation }]) => [uid, generation])),
    policyKeys: Object.fromEntries(
      policies.flatMap(([uid, { policy }]) => (policy === undefined ? [] : [[uid, policy]])),
    ),
    failures: object.status?.failures ?? [],
  };
}
