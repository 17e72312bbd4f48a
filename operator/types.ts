/**
 * The operator: policies, pods and namespaces in; identities, peer sets, resolved policies, endpoint slices and the
 * policies' status out (design section 5).
 *
 *   API --reflectors--> input tables --Model--> desired tables --reconcilers--> API
 *
 * Guarantees:
 * - Nothing is derived before every input, and every object written earlier, has been read completely.
 * - An object is written only when it differs from what the API server holds; after a restart nothing is written twice.
 * - Order: a peer set is written before the identity that joins it and before the policy that names it, an identity
 *   before an endpoint slice that uses it; a peer set is deleted after the last policy that names it.
 * - What agents wrote for nodes and pods that are gone is removed after a grace period of 5 minutes, never on the word of a
 *   watch alone (garbage.ts).
 * - An edit that cannot be read leaves the last readable generation enforced, and the status says so.
 */
import type { CiliumPolicyObject, PolicyStatus, ResolvedPolicyObject, SliceEndpoint } from '@weir/kube';
import type { LabelMap, LabelSelector } from '@weir/labels';
import type { ResolvedRule } from '@weir/policy';

export type PolicyObjectKind = 'CiliumNetworkPolicy' | 'CiliumClusterwideNetworkPolicy';

/** Input: a policy as written, without its status. Key: `cnp/namespace/name`, `ccnp/name`. */
export interface PolicyRow {
  readonly key: string;
  readonly kind: PolicyObjectKind;
  readonly namespace?: string;
  readonly name: string;
  readonly uid: string;
  readonly generation: number;
  readonly object: CiliumPolicyObject;
}

/** Input: a namespace. */
export interface NamespaceRow {
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
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
  readonly addresses: readonly string[];
  readonly namedPorts: readonly { readonly name: string; readonly port: number; readonly protocol: string }[];
}

/** Input: a node. `live`: it exists and its Ready condition is neither False nor Unknown. */
export interface NodeRow {
  readonly name: string;
  readonly live: boolean;
}

/** Input: what one node reports. */
export interface NodeReportRow {
  readonly node: string;
  /** Generation in the kernel by policy uid. */
  readonly generations: Readonly<Record<string, number>>;
  readonly failures: readonly {
    readonly uid: string;
    readonly generation: number;
    readonly reason: string;
    readonly message: string;
  }[];
}

/** Desired: a CiliumIdentity. */
export interface IdentityRow {
  readonly id: number;
  readonly labels: LabelMap;
  /** Hashes of the peer sets that it belonged to when it was allocated, sorted. */
  readonly peerSets: readonly string[];
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

/** Desired: a CiliumEndpointSlice. */
export interface SliceRow {
  readonly name: string;
  readonly namespace: string;
  readonly endpoints: readonly SliceEndpoint[];
}

/** Desired: the status of a policy. */
export interface StatusRow {
  readonly key: string;
  readonly kind: PolicyObjectKind;
  readonly namespace?: string;
  readonly name: string;
  readonly uid: string;
  readonly status: PolicyStatus;
}

/** What the API held when the operator started. */
export interface Adopted {
  readonly identities: Iterable<IdentityRow>;
  readonly peerSets: Iterable<{ readonly hash: string; readonly selector: LabelSelector }>;
  readonly resolved: Iterable<ResolvedRow>;
  readonly slices: Iterable<{ readonly name: string; readonly namespace: string; readonly pods: readonly string[] }>;
  readonly statuses: Iterable<{ readonly key: string; readonly uid: string; readonly status: PolicyStatus }>;
}
