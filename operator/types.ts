/**
 * The operator: policies, pods and namespaces in; identities, peer sets, resolved policies, endpoint slices and the
 * policies' status out (design section 5).
 *
 *   API --reflectors--> input tables --Model--> desired tables --reconcilers--> API
 *
 * `kubernetes/` has the reflectors, what they know of our own objects, and the writers; `model/` what lies between, which knows
 * nothing of the API server; `uninstall/` takes everything back. `operator.ts` puts them together.
 *
 * Guarantees:
 * - Nothing is derived before every input, and every object written earlier, has been read completely. NetworkPolicies
 *   alone may be missing (not served, or not ours to read): what is enforced of them then stays as it is.
 * - An object is written only when it differs from what the API server holds; after a restart nothing is written twice.
 * - Order: a peer set is written before the policy that names it, an identity before an endpoint slice that uses it; a peer
 *   set is deleted after the last policy that names it, an identity after the last slice. A pod whose new identity cannot be written yet keeps the one that its
 *   slice says.
 * - One address is in one slice at most, and only where its pod can have it: in the pod CIDRs of the pod's node, whatever the pod's status says.
 *   Who has it keeps it; a pod that is going gives way; of pods that claim one at once none gets it: so neither a stale nor a forged identity
 *   speaks for another pod.
 * - A status is written at most once a second a policy and never when it says nothing new. Programmed is True only when
 *   each live node that hosts a pod of the policy has reported this generation (model/node-progress.ts says for which nodes it waits besides).
 * - What a policy suffers from is an Event on it, once for each change of the answer, over a change of leader too.
 * - A namespace has no more identities and policies than it may, a policy no more rules and selectors: what goes beyond waits or is refused,
 *   and says so; nobody else pays for it.
 * - What agents wrote for nodes and pods that are gone is removed after a grace period of 5 minutes, never on the word of a
 *   watch alone (kubernetes/garbage.ts).
 * - An edit that cannot be read leaves the last readable generation enforced, and the status says so.
 */
import type { PolicyStatus, ResolvedPolicyObject, SliceEndpoint } from '@weir/kube';
import type { LabelMap, LabelSelector } from '@weir/labels';
import type { Demand, PolicyKind, ResolvedRule } from '@weir/policy';

export type PolicyObjectKind = Exclude<PolicyKind, 'BareRules'>;

/** Input: a policy as written, without its status. Key: `cnp/namespace/name`, `knp/namespace/name`, `ccnp/name`. */
export interface PolicyRow {
  readonly key: string;
  readonly kind: PolicyObjectKind;
  readonly namespace?: string;
  readonly name: string;
  readonly uid: string;
  readonly generation: number;
  /** What the policy asks for, as it is written. */
  readonly demand: Demand;
  /** The API object, with name and namespace alone of its metadata; without what its rules allow where they ask for more than one policy may (closedPolicy). */
  readonly object: object;
}

/** Input: a namespace. */
export interface NamespaceRow {
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
}

/** Input: a Service. Key: `namespace/name`. */
export interface ServiceRow {
  readonly key: string;
  readonly namespace: string;
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  /** Empty where it selects no pods. */
  readonly selector: Readonly<Record<string, string>>;
  /** It is a name of DNS. */
  readonly external: boolean;
}

/** Input: an EndpointSlice of a Service. Key: `namespace/name`. */
export interface ServiceSliceRow {
  readonly key: string;
  /** Key of its Service. */
  readonly service: string;
  /** Canonical, in order, each once; ready or not. */
  readonly addresses: readonly string[];
}

/** A port of a pod that has a name. */
export interface PodPort {
  readonly name: string;
  readonly port: number;
  readonly protocol: string;
}

/** Input: a pod, reduced to what decides its identity and where it is. Key: `namespace/name`. */
export interface PodRow {
  readonly key: string;
  readonly namespace: string;
  readonly name: string;
  readonly uid: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly serviceAccount: string | undefined;
  readonly node: string | undefined;
  /** Address of the pod's node; '' when not known yet. */
  readonly hostIP: string;
  readonly hostNetwork: boolean;
  /** Succeeded or Failed: its addresses may belong to another pod already. */
  readonly finished: boolean;
  readonly terminating: boolean;
  /** Canonical, at most one of each family. Whoever may write the pod's status says them. */
  readonly addresses: readonly string[];
  /** Of its containers and the init containers that run beside them; each (name, protocol) once. Empty where they are too many. */
  readonly namedPorts: readonly PodPort[];
  /** By how much the named ports are too many, in words; undefined: they are not. */
  readonly portExcess: string | undefined;
}

/** Input: a node. `live`: it exists and its Ready condition is neither False nor Unknown. */
export interface NodeRow {
  readonly name: string;
  readonly uid: string;
  readonly live: boolean;
  /** RFC 3339, in seconds, from the API server. */
  readonly created: string;
  /** That it reports of itself, canonical, as many as count; its kubelet writes them. */
  readonly addresses: readonly string[];
  /** How many it reports. */
  readonly reportedAddresses: number;
  /** Of its pods, canonical; never changed once they are set. */
  readonly podCidrs: readonly string[];
}

/** Input: what one node reports. */
export interface NodeReportRow {
  readonly node: string;
  /** Uid of the Node that wrote it; undefined: it does not say. A later Node of the same name has not reported yet. */
  readonly nodeUid: string | undefined;
  /** Every change of a ResolvedPolicy up to this resourceVersion is in its kernel; undefined: it does not say. */
  readonly policyVersion: string | undefined;
  /** What it could not do, by policy uid. No policy looks at the failures of the others, however many there are. */
  readonly failures: Readonly<Partial<Record<string, readonly ReportedFailure[]>>>;
  /** Failures that the report does not list. */
  readonly unlisted: number;
}

export interface ReportedFailure {
  readonly uid: string;
  readonly generation: number;
  readonly reason: string;
  readonly message: string;
}

/** Input: a ResolvedPolicy that the API server holds. Key: `name`. */
export interface ResolvedVersionRow {
  readonly name: string;
  /** Of the policy that it comes from. */
  readonly uid: string;
  readonly generation: number;
  /** A resourceVersion at which it had this generation. */
  readonly version: string;
}

/** Desired: a CiliumIdentity. */
export interface IdentityRow {
  readonly id: number;
  readonly labels: LabelMap;
}

/** Desired: one slice of a peer set. */
export interface PeerSetRow {
  readonly name: string;
  readonly hash: string;
  readonly selector: LabelSelector;
  readonly identities: readonly number[];
  readonly slice: number;
  readonly slices: number;
}

/** Desired: a ResolvedPolicy. */
export interface ResolvedRow {
  readonly name: string;
  readonly source: ResolvedPolicyObject['spec']['source'];
  readonly rules: readonly ResolvedRule[];
}

/** A pod's place in a slice. */
export interface SlicedPod extends SliceEndpoint {
  /** Tells one pod of a name from the next; the object says it in an annotation. */
  readonly uid?: string;
}

/** Desired: a CiliumEndpointSlice. */
export interface SliceRow {
  readonly name: string;
  readonly namespace: string;
  readonly endpoints: readonly SlicedPod[];
}

/** Desired: the status of a policy. A NetworkPolicy has none: its status is that of its ResolvedPolicy. */
export interface StatusRow {
  readonly key: string;
  readonly kind: PolicyObjectKind;
  readonly namespace?: string;
  readonly name: string;
  readonly uid: string;
  readonly status: PolicyStatus;
}

/** Desired: an Event. Of a policy, one for each (object, reason); `count` and `last` grow. */
export interface EventRow {
  readonly key: string;
  readonly about: Pick<StatusRow, 'key' | 'namespace' | 'name' | 'uid'> & { readonly kind: PolicyObjectKind | 'Pod' };
  readonly type: 'Normal' | 'Warning';
  readonly reason: string;
  readonly message: string;
  readonly count: number;
  /** RFC 3339, in seconds. */
  readonly first: string;
  readonly last: string;
}

/** What the API server had when the operator started. */
export interface Adopted {
  readonly identities: Iterable<IdentityRow>;
  readonly peerSets: Iterable<Pick<PeerSetRow, 'hash' | 'selector'>>;
  readonly resolved: Iterable<ResolvedRow>;
  readonly slices: Iterable<AdoptedSlice>;
  readonly statuses: Iterable<{ readonly key: string; readonly uid: string; readonly status: PolicyStatus }>;
}

/** A CiliumEndpointSlice that the API server had. */
export interface AdoptedSlice {
  readonly name: string;
  readonly namespace: string;
  readonly pods: readonly {
    readonly name: string;
    /** Absent: the slice does not say it. */
    readonly uid?: string;
    /** The number that agents know it by; absent: the slice does not say one. */
    readonly identity?: number;
    readonly addresses: readonly string[];
  }[];
}

/** An address that a pod claims, and that does not count. */
export interface RefusedAddress {
  readonly address: string;
  /** `namespace/name`. */
  readonly pod: string;
  /** `elsewhere`: pods of its node have no such address. `taken`: another pod had it first. `contested`: several claimed it at once. */
  readonly reason: 'elsewhere' | 'taken' | 'contested';
  /** Pods that have it, or claim it too: the first by name, at most 5. */
  readonly others: readonly string[];
}

/** A kind of objects that is read. */
export interface InputSource {
  readonly name: string;
  /** Among the others. */
  readonly place: number;
  readonly synced: boolean;
  /** Why it could not be read last. */
  readonly error: string | undefined;
  /** The kind of objects, where they cannot be read and the rest does not wait for them. */
  readonly missing: string | undefined;
}
