/** API objects from desired rows, and what of an object says whether it is as desired. */
import type {
  CiliumEndpointSlice,
  CiliumIdentity,
  CiliumPolicyObject,
  KubeEvent,
  KubeObject,
  PeerSet,
  PolicyStatus,
  ResolvedPolicyObject,
} from '@weir/kube';
import { POD_UIDS_ANNOTATION } from '@weir/kube';
import { type LabelMap, labelValueProblem, parseSelectorKey } from '@weir/labels';
import { eventName, resolvedName } from '../names.ts';
import { oneLine } from '../texts.ts';
import type {
  Adopted,
  AdoptedSlice,
  EventRow,
  IdentityRow,
  PeerSetRow,
  ResolvedRow,
  SlicedPod,
  SliceRow,
  StatusRow,
} from '../types.ts';
import { canonicalAddress } from './addresses.ts';

/** Who an Event comes from. */
const REPORTER = 'weir-operator';

const API_VERSIONS: Readonly<Record<EventRow['about']['kind'], string>> = {
  CiliumNetworkPolicy: 'cilium.io/v2',
  CiliumClusterwideNetworkPolicy: 'cilium.io/v2',
  NetworkPolicy: 'networking.k8s.io/v1',
  Pod: 'v1',
};

/** Without a spec: for the status subresource. */
export interface ResolvedPolicyWithStatus extends KubeObject {
  readonly spec?: ResolvedPolicyObject['spec'];
  readonly status?: PolicyStatus;
}

type EventObject = KubeEvent & { readonly reportingComponent: string };

export function identityObject(row: IdentityRow): CiliumIdentity {
  return {
    apiVersion: 'cilium.io/v2',
    kind: 'CiliumIdentity',
    metadata: { name: String(row.id), labels: legalLabels(row.labels) },
    'security-labels': row.labels,
  };
}

/** The k8s labels of an identity that an object may carry: a name of more than 63 characters may not. */
function legalLabels(labels: LabelMap): Record<string, string> {
  const legal: Record<string, string> = {};
  for (const [name, value] of Object.entries(labels)) {
    if (!name.startsWith('k8s:')) continue;
    const key = name.slice('k8s:'.length);
    if (isLabelKey(key) && labelValueProblem(value) === undefined) legal[key] = value;
  }
  return legal;
}

function isLabelKey(key: string): boolean {
  try {
    parseSelectorKey(key, { keys: 'kubernetes' });
    return true;
  } catch {
    // Not an error: such a label is simply not shown.
    return false;
  }
}

export function peerSetObject(row: PeerSetRow): PeerSet {
  const { name, hash, selector, identities, slice, slices } = row;
  return {
    apiVersion: 'weir.dev/v1alpha1',
    kind: 'PeerSet',
    metadata: { name },
    spec: { hash, selector, identities, slice, slices },
  };
}

export function resolvedObject(row: ResolvedRow): ResolvedPolicyObject {
  return {
    apiVersion: 'weir.dev/v1alpha1',
    kind: 'ResolvedPolicy',
    metadata: { name: row.name },
    spec: { source: row.source, rules: row.rules },
  };
}

export function sliceObject(row: SliceRow): CiliumEndpointSlice {
  const uids = row.endpoints.map(({ uid }) => uid ?? '').join(',');
  return {
    apiVersion: 'cilium.io/v2alpha1',
    kind: 'CiliumEndpointSlice',
    metadata: { name: row.name, annotations: { [POD_UIDS_ANNOTATION]: uids } },
    namespace: row.namespace,
    endpoints: row.endpoints.map(({ uid: _, ...endpoint }) => endpoint),
  };
}

/** The pods of a slice, as the API holds it. */
export function slicedPods(object: CiliumEndpointSlice): SlicedPod[] {
  const endpoints = object.endpoints ?? [];
  const uids = (object.metadata.annotations?.[POD_UIDS_ANNOTATION] ?? '').split(',');
  return endpoints.map((endpoint, index) => {
    const uid = uids.length === endpoints.length ? uids[index] : undefined;
    return uid === undefined || uid === '' ? endpoint : { ...endpoint, uid };
  });
}

/** For the status subresource. The uid keeps it off another object of the same name. */
export function statusObject(row: StatusRow): CiliumPolicyObject {
  return {
    apiVersion: 'cilium.io/v2',
    kind: row.kind,
    metadata: {
      name: row.name,
      uid: row.uid,
      ...(row.namespace === undefined ? {} : { namespace: row.namespace }),
    },
    status: row.status,
  };
}

/** The status of a NetworkPolicy, on the ResolvedPolicy that comes from it. */
export function resolvedStatusObject(row: StatusRow, uid: string | undefined): ResolvedPolicyWithStatus {
  return {
    apiVersion: 'weir.dev/v1alpha1',
    kind: 'ResolvedPolicy',
    metadata: { name: resolvedName(row.kind, row.namespace, row.name), ...(uid === undefined ? {} : { uid }) },
    status: row.status,
  };
}

/** In the policy's namespace; a cluster-wide policy's Events are in `default`, as those of all such objects. */
export function eventObject(row: EventRow): EventObject {
  const { kind, namespace, name, uid } = row.about;
  return {
    apiVersion: 'v1',
    kind: 'Event',
    metadata: { namespace: namespace ?? 'default', name: eventName(name, uid, row.reason) },
    involvedObject: {
      apiVersion: API_VERSIONS[kind],
      kind,
      ...(namespace === undefined ? {} : { namespace }),
      name,
      uid,
    },
    type: row.type,
    reason: row.reason,
    message: oneLine(row.message),
    count: row.count,
    firstTimestamp: row.first,
    lastTimestamp: row.last,
    source: { component: REPORTER },
    reportingComponent: REPORTER,
  };
}

/** The parts that are compared before a write. */
export const content = {
  identity: (object: CiliumIdentity): unknown => [object['security-labels'], object.metadata.labels ?? {}],
  peerSet: (object: PeerSet): unknown => object.spec,
  resolved: (object: ResolvedPolicyObject): unknown => object.spec,
  slice: (object: CiliumEndpointSlice): unknown => [
    object.namespace,
    object.endpoints,
    object.metadata.annotations?.[POD_UIDS_ANNOTATION] ?? '',
  ],
  status: (object: { readonly status?: PolicyStatus }): unknown => object.status,
};

export function adoptedIdentity(object: CiliumIdentity): Adopted['identities'] extends Iterable<infer T> ? T : never {
  return {
    id: /^[1-9][0-9]{0,9}$/.test(object.metadata.name) ? Number(object.metadata.name) : 0,
    labels: object['security-labels'] ?? {},
  };
}

/** Whoever wrote the slice: what is no address is left out. */
export function adoptedSlice(object: CiliumEndpointSlice): AdoptedSlice {
  return {
    name: object.metadata.name,
    namespace: object.namespace,
    pods: slicedPods(object).map(
      ({ name, uid, identity, networking }: Partial<SlicedPod> & Pick<SlicedPod, 'name'>) => ({
        name,
        ...(uid === undefined ? {} : { uid }),
        ...(identity === undefined ? {} : { identity }),
        addresses: (networking?.addressing ?? []).flatMap(({ ipv4 = '', ipv6 = '' }) =>
          [ipv4, ipv6].flatMap(canonicalAddress),
        ),
      }),
    ),
  };
}
