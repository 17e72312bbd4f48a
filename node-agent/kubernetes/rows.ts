/** Objects of the API to rows of the tables. Pure; each throws `ObjectShapeError` for an object that says nothing usable. */
import {
  type CiliumEndpointSlice,
  type CiliumIdentity,
  MIRROR_POD_ANNOTATION,
  type Namespace,
  namedPort,
  type PeerSet,
  POD_UIDS_ANNOTATION,
  type Pod,
  podPorts,
  type ResolvedPolicyObject,
  type Service,
  textMapOf,
  textsIn,
} from '@weir/kube';
import { isLabelSelector, labelExcess, labelsKey } from '@weir/labels';
import { shapeProblem } from '@weir/policy';
import { messageOf } from '@weir/process/errors';
import type { Key } from '@weir/statedb';
import { tableKey } from '../create-tables.ts';
import type {
  IdentityRow,
  LocalPodRow,
  NamespaceRow,
  PeerSetRow,
  PolicyRow,
  PolicyStatusRow,
  RemoteEndpointRow,
  ServiceRow,
  UnreadPolicyRow,
} from '../tables.ts';
import { ObjectShapeError } from './errors.ts';

/** The pod has a sandbox with a network; False again once that is gone (Kubernetes 1.29, before behind a feature gate). */
const SANDBOX_READY = 'PodReadyToStartContainers';

/** By primary key of the row. */
type Parts<P> = ReadonlyMap<Key, P>;

export function policyParts(object: ResolvedPolicyObject): Parts<PolicyRow> {
  const source = object.spec?.source;
  if (typeof source?.uid !== 'string' || source.uid === '')
    throw new ObjectShapeError('spec.source.uid', 'a uid', source?.uid);
  if (!Number.isInteger(source.generation))
    throw new ObjectShapeError('spec.source.generation', 'a whole number', source.generation);
  const { kind, namespace = '', name }: { kind: unknown; namespace?: unknown; name: unknown } = source;
  if (![kind, namespace, name].every((text) => typeof text === 'string'))
    throw new ObjectShapeError('spec.source', "a policy's kind, namespace and name", source);
  if (!Array.isArray(object.spec.rules)) throw new ObjectShapeError('spec.rules', 'a list', object.spec.rules);
  for (const [index, rule] of object.spec.rules.entries()) checkRule(rule, `spec.rules[${index}]`);
  return one(source.uid, {
    uid: source.uid,
    kind: source.kind,
    ...(source.namespace === undefined ? {} : { namespace: source.namespace }),
    name: source.name,
    generation: source.generation,
    rules: object.spec.rules,
  });
}

/** A policy of which `policyParts` reads nothing. Where not even its uid can be read, nobody can say so. */
export function unreadPolicyParts(object: ResolvedPolicyObject): Parts<UnreadPolicyRow> {
  try {
    policyParts(object);
    return new Map();
  } catch (error) {
    const { uid, generation }: { uid?: unknown; generation?: unknown } = object.spec?.source ?? {};
    if (typeof uid !== 'string' || uid === '') return new Map();
    const known = typeof generation === 'number' && Number.isSafeInteger(generation);
    return one(uid, { uid, generation: known ? generation : 0, problem: messageOf(error) });
  }
}

function checkRule(rule: unknown, path: string): void {
  const problem = shapeProblem(rule);
  if (problem === undefined) return;
  const { field, expected, value } = problem;
  throw new ObjectShapeError(field === '' ? path : `${path}.${field}`, expected, value);
}

/** The newest generation: while the operator of another version gives the object another name, two speak of one policy. */
export function mergePolicy(_uid: string, parts: readonly PolicyRow[]): PolicyRow | undefined {
  return parts.reduce<PolicyRow | undefined>(
    (newest, part) => (newest !== undefined && newest.generation > part.generation ? newest : part),
    undefined,
  );
}

/** What the operator says of the policy; nothing before it has. */
export function policyStatusParts(
  object: ResolvedPolicyObject & { readonly status?: unknown },
): Parts<PolicyStatusRow> {
  const uid = object.spec?.source?.uid;
  const { status } = object;
  if (status === undefined || status === null) return new Map();
  if (typeof uid !== 'string' || uid === '') throw new ObjectShapeError('spec.source.uid', 'a uid', uid);
  if (typeof status !== 'object' || !('conditions' in status) || !Array.isArray(status.conditions))
    throw new ObjectShapeError('status.conditions', 'a list', status);
  return one(uid, { uid, status: status as PolicyStatusRow['status'] });
}

export function peerSetParts(object: PeerSet): Parts<PeerSet['spec']> {
  const { spec } = object;
  if (typeof spec?.hash !== 'string') throw new ObjectShapeError('spec.hash', 'a hash', spec?.hash);
  if (!isLabelSelector(spec.selector)) throw new ObjectShapeError('spec.selector', 'a selector', spec.selector);
  if (!Array.isArray(spec.identities)) throw new ObjectShapeError('spec.identities', 'a list', spec.identities);
  if (!Number.isInteger(spec.slice) || spec.slice < 0)
    throw new ObjectShapeError('spec.slice', 'a number from 0', spec.slice);
  if (!Number.isInteger(spec.slices) || spec.slices < 1)
    throw new ObjectShapeError('spec.slices', 'a number from 1', spec.slices);
  return one(spec.hash, spec);
}

/**
 * A set is taken only when all of its slices are there (slice 0 says how many): half a set would let a denied peer pass, or cut an allowed
 * one. While slices are being rewritten, what was complete before stands.
 */
export function mergePeerSet(
  hash: string,
  slices: readonly PeerSet['spec'][],
  before: PeerSetRow | undefined,
): PeerSetRow | undefined {
  const first = slices.find((slice) => slice.slice === 0);
  const count = first?.slices ?? 0;
  const members = slices.filter((slice) => slice.slices === count && slice.slice < count);
  if (first === undefined || new Set(members.map((slice) => slice.slice)).size !== count) return before;
  // What is no number of an identity is nobody.
  const numbers = members.flatMap((slice) => slice.identities).filter((id) => Number.isSafeInteger(id));
  const identities = [...new Set(numbers)].sort((a, b) => a - b);
  return { hash, selector: first.selector, identities, origin: 'cluster' };
}

export function identityParts(object: CiliumIdentity): Parts<IdentityRow> {
  const { name } = object.metadata;
  const id = Number(name);
  if (!/^[1-9]\d*$/.test(name) || id > 0xffffff)
    throw new ObjectShapeError('metadata.name', 'an identity number', name);
  const labels = object['security-labels'];
  if (!isTextMap(labels)) throw new ObjectShapeError('security-labels', 'a map of texts', labels);
  const excess = labelExcess(labels);
  if (excess !== undefined)
    throw new ObjectShapeError('security-labels', 'as few labels as an identity may have', excess);
  return one(tableKey.identity(id), { id, labels, labelsKey: labelsKey(labels) });
}

function isTextMap(value: unknown): boolean {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return false;
  return Object.values(value).every((each) => typeof each === 'string');
}

export function endpointSliceParts(object: CiliumEndpointSlice): Parts<RemoteEndpointRow> {
  if (typeof object.namespace !== 'string') throw new ObjectShapeError('namespace', 'a namespace', object.namespace);
  const endpoints = object.endpoints ?? [];
  const uids = (object.metadata.annotations?.[POD_UIDS_ANNOTATION] ?? '').split(',');
  return new Map(
    endpoints.map((endpoint, index) => {
      // A list of another length is not of these endpoints.
      const podUid = uids.length === endpoints.length ? uids[index] : undefined;
      const addresses = (endpoint.networking?.addressing ?? []).flatMap(({ ipv4, ipv6 }) => textsIn([ipv4, ipv6]));
      const row: RemoteEndpointRow = {
        namespace: object.namespace,
        name: endpoint.name,
        addresses,
        // What is no number of an identity is nobody's.
        identity: Number.isSafeInteger(endpoint.identity) ? Math.max(0, endpoint.identity) : 0,
        node: endpoint.networking?.node ?? '',
        namedPorts: (endpoint['named-ports'] ?? []).flatMap(({ name, port, protocol }) =>
          namedPort(name, port, protocol),
        ),
        ...(podUid === undefined || podUid === '' ? {} : { podUid }),
      };
      return [tableKey.pod(row.namespace, row.name), row] as const;
    }),
  );
}

/**
 * The pod, when every slice that names it says the same; they do while it moves from one to another. Where they differ, some of them tell
 * of a pod of this name that is gone, and which it is nobody can say: a late write may come after the one that followed it. Then all of their
 * addresses are nobody's.
 */
export function mergeEndpoint(_key: string, parts: readonly RemoteEndpointRow[]): RemoteEndpointRow | undefined {
  const newest = parts.at(-1);
  if (newest === undefined) return undefined;
  const { podUid, ...nobody } = newest;
  if (parts.every((part) => part.podUid === podUid && part.identity === newest.identity)) return newest;
  return {
    ...nobody,
    identity: 0,
    addresses: [...new Set(parts.flatMap(({ addresses }) => addresses))],
    namedPorts: parts.flatMap(({ namedPorts }) => namedPorts),
  };
}

/** Pods of this node that have a network of their own. */
export function podParts(nodeName: string): (object: Pod) => Parts<LocalPodRow> {
  return ({ metadata, spec, status }) => {
    if (spec?.nodeName !== nodeName || spec.hostNetwork === true) return new Map();
    const namespace = metadata.namespace ?? '';
    const objectUid = metadata.uid ?? '';
    const { named, excess } = podPorts(spec);
    // It counts for this pod's own name only.
    const staticUid = metadata.annotations?.[MIRROR_POD_ANNOTATION] ?? '';
    return one(tableKey.pod(namespace, metadata.name), {
      namespace,
      name: metadata.name,
      ...(staticUid === '' ? { uid: objectUid } : { uid: staticUid, mirrorUid: objectUid }),
      labels: textMapOf(metadata.labels),
      serviceAccount: typeof spec.serviceAccountName === 'string' ? spec.serviceAccountName : undefined,
      namedPorts: named,
      ...(excess === undefined ? {} : { portExcess: excess }),
      addresses: addressesOf(status),
    });
  };
}

/**
 * A pod that has finished holds its addresses until its sandbox is gone, which kubelet says by a condition; the status names them for as
 * long as the object lives.
 */
function addressesOf(status: Pod['status'] = {}): readonly string[] {
  const { phase, podIP = '', podIPs = [], conditions = [] } = status;
  const finished = phase === 'Succeeded' || phase === 'Failed';
  if (finished && !conditions.some(({ type, status }) => type === SANDBOX_READY && status === 'True')) return [];
  const addresses = textsIn(podIPs.map(({ ip }) => ip));
  return addresses.length > 0 ? addresses : textsIn([podIP]);
}

/** A Service's own addresses; of a headless one, none. */
export function serviceParts({ metadata, spec, status }: Service): Parts<ServiceRow> {
  const namespace = metadata.namespace ?? '';
  const balanced = (status?.loadBalancer?.ingress ?? []).map(({ ip }) => ip);
  const all = [...(spec?.clusterIPs ?? []), ...(spec?.externalIPs ?? []), ...balanced];
  const addresses = [...new Set(textsIn(all))].filter((address) => address !== 'None');
  return one(`${namespace}/${metadata.name}`, { namespace, name: metadata.name, addresses });
}

export function namespaceParts({ metadata }: Namespace): Parts<NamespaceRow> {
  return one(metadata.name, { name: metadata.name, labels: textMapOf(metadata.labels) });
}

function one<P>(key: Key, part: P): Parts<P> {
  return new Map([[key, part]]);
}
