/** Rows of the input tables, from API objects: only what the derivation reads, so that other changes wake nobody. */
import {
  type CiliumCidrGroupObject,
  type EndpointSlice,
  type KubeNode,
  type KubeObject,
  MOST_REPORTED_FAILURES,
  type Namespace,
  type NodePolicyStatus,
  nodeAddresses,
  nodePodCidrs,
  objectsIn,
  type Pod,
  type PolicyStatus,
  podPorts,
  type ResolvedPolicyObject,
  type Service,
  textMapOf,
  textOf,
  textsIn,
  withoutManagedFields,
} from '@weir/kube';
import {
  type CidrGroup,
  cidrGroupOf,
  closedPolicy,
  type Demand,
  type DemandLimits,
  demandOf,
  demandProblem,
} from '@weir/policy';
import { policyKey } from '../names.ts';
import type {
  NamespaceRow,
  NodeReportRow,
  NodeRow,
  PodPort,
  PodRow,
  PolicyObjectKind,
  PolicyRow,
  ReportedFailure,
  ResolvedVersionRow,
  ServiceRow,
  ServiceSliceRow,
} from '../types.ts';
import { canonicalAddress, canonicalCidr } from './addresses.ts';

/** A policy of which it is known what it asks for. */
interface CountedPolicy extends KubeObject {
  readonly status?: PolicyStatus;
  readonly demand?: Demand;
}

interface ClosedPolicy {
  readonly spec?: unknown;
  readonly specs?: unknown;
}

/**
 * What is kept of a policy: of one that asks for more than it may what it asks for, and what closes whom it is about. 1.4 MB of JSON take up to 30 MB.
 * @param known its row, where there is one: one generation is counted once
 */
export function countedPolicy(
  object: CountedPolicy,
  kind: PolicyObjectKind,
  limits: DemandLimits,
  known: PolicyRow | undefined,
): CountedPolicy {
  const { apiVersion, kind: objectKind, metadata, status } = object;
  const { uid = '', generation = 0 } = metadata;
  const isKnown = known?.uid === uid && known.generation === generation;
  const demand = isKnown ? known.demand : demandOf(object, kind);
  if (demandProblem(demand, limits) === undefined) return { ...withoutManagedFields(object), demand };
  const rest = { apiVersion, kind: objectKind, metadata, ...(status === undefined ? {} : { status }) };
  const closed = closedPolicy(object, kind);
  const { spec, specs } = demandProblem(demandOf(closed, kind), limits) === undefined ? (closed as ClosedPolicy) : {};
  const rules = { ...(spec === undefined ? {} : { spec }), ...(specs === undefined ? {} : { specs }) };
  return { ...withoutManagedFields(rest), ...rules, demand };
}

export function policyRow(object: CountedPolicy, kind: PolicyObjectKind): PolicyRow {
  const { name, namespace, uid = '', generation = 0 } = object.metadata;
  const { status: _status, metadata: _metadata, demand = demandOf(object, kind), ...rest } = object;
  return {
    key: policyKey(kind, namespace, name),
    kind,
    ...(namespace === undefined ? {} : { namespace }),
    name,
    uid,
    generation,
    demand,
    object: { ...rest, metadata: { name, ...(namespace === undefined ? {} : { namespace }) } },
  };
}

export function namespaceRow(object: Namespace): NamespaceRow {
  return { name: object.metadata.name, labels: textMapOf(object.metadata.labels) };
}

/** The label by which an EndpointSlice names its Service. */
const SERVICE_NAME = 'kubernetes.io/service-name';

export function serviceRow(object: Service): ServiceRow {
  const { name, namespace = '', labels } = object.metadata;
  return {
    key: podKey(object),
    namespace,
    name,
    labels: textMapOf(labels),
    selector: textMapOf(object.spec?.selector),
    external: object.spec?.type === 'ExternalName',
  };
}

export function cidrGroupRow({ metadata, spec }: CiliumCidrGroupObject): CidrGroup {
  return cidrGroupOf(metadata.name, textMapOf(metadata.labels), spec);
}

export function serviceSliceRow(object: EndpointSlice): ServiceSliceRow {
  const { namespace = '', labels } = object.metadata;
  const addresses = objectsIn(object.endpoints).flatMap(({ addresses: some }) => textsIn(some ?? []));
  return {
    key: podKey(object),
    service: `${namespace}/${textMapOf(labels)[SERVICE_NAME] ?? ''}`,
    addresses: [...new Set(addresses.flatMap(canonicalAddress))].sort(),
  };
}

export function podKey({ metadata: { namespace = '', name } }: KubeObject): string {
  return `${namespace}/${name}`;
}

export function podRow(pod: Pod): PodRow {
  const { name, namespace = '', uid = '', labels, deletionTimestamp } = pod.metadata;
  const ips = textsIn(objectsIn(pod.status?.podIPs).map(({ ip }) => ip));
  const { phase, podIP, hostIP } = pod.status ?? {};
  const ports = podPorts(pod.spec);
  return {
    key: podKey(pod),
    namespace,
    name,
    uid,
    labels: textMapOf(labels),
    serviceAccount: serviceAccountOf(pod),
    node: textOf(pod.spec?.nodeName),
    hostIP: textsIn([hostIP]).flatMap(canonicalAddress)[0] ?? '',
    hostNetwork: pod.spec?.hostNetwork === true,
    finished: phase === 'Succeeded' || phase === 'Failed',
    terminating: deletionTimestamp !== undefined,
    addresses: podAddresses(ips.length > 0 ? ips : textsIn([podIP])),
    namedPorts: firstOfEachName(ports.named),
    portExcess: ports.excess,
  };
}

function serviceAccountOf({ spec }: Pod): string | undefined {
  return typeof spec?.serviceAccountName === 'string' ? spec.serviceAccountName : undefined;
}

/** The first of each family: the API server takes no more. */
function podAddresses(texts: readonly string[]): string[] {
  const all = texts.flatMap(canonicalAddress);
  return [all.find((ip) => !ip.includes(':')) ?? [], all.find((ip) => ip.includes(':')) ?? []].flat();
}

/** The first of a name and protocol counts, as Kubernetes itself looks names up. */
function firstOfEachName(ports: readonly PodPort[]): PodPort[] {
  const byName = new Map<string, PodPort>();
  for (const port of ports) {
    const key = `${port.protocol}/${port.name}`;
    if (!byName.has(key)) byName.set(key, port);
  }
  return [...byName.values()];
}

export function nodeRow(node: KubeNode): NodeRow {
  const ready = objectsIn(node.status?.conditions).find((condition) => condition.type === 'Ready');
  const { name, uid = '', creationTimestamp: created = '' } = node.metadata;
  const { addresses, reported } = nodeAddresses(node);
  return {
    name,
    uid,
    live: ready === undefined || ready.status === 'True',
    created,
    addresses: addresses.flatMap(canonicalAddress),
    reportedAddresses: reported,
    podCidrs: nodePodCidrs(node).flatMap(canonicalCidr),
  };
}

/** @throws TypeError when it does not say of which policy it is */
export function resolvedVersionRow({ metadata, spec }: ResolvedPolicyObject): ResolvedVersionRow {
  const { name, resourceVersion = '' } = metadata;
  const { uid, generation }: Partial<ResolvedPolicyObject['spec']['source']> = spec?.source ?? {};
  if (textOf(uid) === undefined || !Number.isInteger(generation))
    throw new TypeError('spec.source names no policy by uid and generation');
  return { name, uid: uid ?? '', generation: generation ?? 0, version: resourceVersion };
}

/**
 * A node can leave out, or make up, whatever it likes: an empty failure does not count. Of more failures than a report has room for the rest
 * counts as unlisted.
 */
export function nodeReportRow(object: NodePolicyStatus): NodeReportRow {
  const { failures, failureCount, policyVersion }: Partial<NodePolicyStatus['status']> = object.status ?? {};
  const owners = objectsIn(
    object.metadata.ownerReferences as readonly { readonly kind?: string; readonly uid?: string }[],
  );
  const found = objectsIn(failures).filter(isFailure);
  const listed = found.slice(0, MOST_REPORTED_FAILURES);
  const count = Number.isSafeInteger(failureCount) ? Math.max(failureCount ?? 0, found.length) : found.length;
  return {
    node: object.metadata.name,
    nodeUid: textOf(owners.find((owner) => owner.kind === 'Node')?.uid),
    policyVersion: textOf(policyVersion),
    failures: Object.groupBy(listed, ({ uid }) => uid),
    unlisted: count - listed.length,
  };
}

function isFailure(failure: Partial<ReportedFailure>): failure is ReportedFailure {
  const { uid, generation, reason, message } = failure;
  const complete = typeof reason === 'string' && typeof message === 'string';
  return textOf(uid) !== undefined && Number.isInteger(generation) && complete;
}
