/** Objects of cilium.io and weir.dev. */

import type { LabelMap, LabelSelector } from '@weir/labels';
import type { PolicyKind, ResolvedRule, SelectorHash } from '@weir/policy';
import type { KubeObject } from './kubernetes-objects.ts';

export interface Condition {
  readonly type: 'Valid' | 'ResolvedRefs' | 'Programmed' | 'Ready';
  readonly status: 'True' | 'False' | 'Unknown';
  readonly reason: string;
  readonly message: string;
  readonly observedGeneration: number;
  readonly lastTransitionTime: string;
}

/** Status of a CNP or CCNP, or of the ResolvedPolicy of a NetworkPolicy (design section 7). */
export interface PolicyStatus {
  readonly observedGeneration: number;
  readonly summary: { readonly nodes: string; readonly endpoints: number; readonly rules: number };
  readonly conditions: readonly Condition[];
  readonly failures?: readonly { readonly node: string; readonly reason: string; readonly message: string }[];
  readonly failureCount?: number;
}

/** CNP (namespaced) and CCNP (cluster), cilium.io/v2. The spec stays raw JSON here: @weir/policy is its only judge. */
export interface CiliumPolicyObject extends KubeObject {
  readonly spec?: unknown;
  readonly specs?: unknown;
  readonly status?: PolicyStatus;
}

/** cilium.io/v2 CiliumIdentity; the name is the decimal number. */
export interface CiliumIdentity extends KubeObject {
  /** `source:key` -> value, the identity's labels. */
  readonly 'security-labels': LabelMap;
}

/** cilium.io/v2 CiliumCIDRGroup, cluster. As anybody wrote it: `parseCidrGroup` reads it. */
export interface CiliumCidrGroupObject extends KubeObject {
  readonly spec?: unknown;
}

/**
 * On a CiliumEndpointSlice: uids of its endpoints' pods, in their order, comma-separated. An address keeps its identity while that of
 * its pod changes, but never for another pod of the same name.
 */
export const POD_UIDS_ANNOTATION = 'weir.dev/pod-uids';

/** weir.dev/v1alpha1 PeerSet, cluster. Name: `<hash>` for slice 0, `<hash>-<n>` for the others. */
export interface PeerSet extends KubeObject {
  readonly spec: {
    readonly hash: SelectorHash;
    readonly selector: LabelSelector;
    /** Ascending. */
    readonly identities: readonly number[];
    readonly slice: number;
    /** How many slices the set has, in every slice; a set is known to a node when it has all of them. */
    readonly slices: number;
  };
}

/** weir.dev/v1alpha1 ResolvedPolicy, cluster. Name: `cnp-<namespace>.<name>`, `ccnp-<name>`, `knp-<namespace>.<name>` (hashed when too long). */
export interface ResolvedPolicyObject extends KubeObject {
  readonly spec: {
    readonly source: {
      readonly kind: Exclude<PolicyKind, 'BareRules'>;
      readonly namespace?: string;
      readonly name: string;
      readonly uid: string;
      readonly generation: number;
    };
    readonly rules: readonly ResolvedRule[];
  };
  /** For a NetworkPolicy only, which has no status of its own: how far it is enforced. A subresource. */
  readonly status?: PolicyStatus;
}

/** One endpoint of a CiliumEndpointSlice (cilium.io/v2alpha1): how nodes learn address -> identity. */
export interface SliceEndpoint {
  /** Pod name; the slice's top-level `namespace` holds its namespace. */
  readonly name: string;
  readonly id: number;
  /** Numeric identity. */
  readonly identity: number;
  readonly networking: {
    readonly addressing: readonly { readonly ipv4?: string; readonly ipv6?: string }[];
    readonly node: string;
  };
  readonly 'named-ports'?: readonly { readonly name: string; readonly port: number; readonly protocol: string }[];
}

export interface CiliumEndpointSlice extends KubeObject {
  readonly namespace: string;
  readonly endpoints: readonly SliceEndpoint[];
}

/**
 * On a CiliumEndpoint: the node whose agent writes it. The chart's admission policy goes by it; a label could not hold a name as long as
 * nodes may have.
 */
export const NODE_ANNOTATION = 'weir.dev/node';

/** cilium.io/v2 CiliumEndpoint (ns/pod name), written by the agent. */
export interface CiliumEndpoint extends KubeObject {
  readonly status?: {
    readonly id: number;
    /** Absent: the kernel has nothing of the pod. */
    readonly identity?: { readonly id: number; readonly labels: readonly string[] };
    readonly networking: {
      readonly addressing: readonly { readonly ipv4?: string; readonly ipv6?: string }[];
      readonly node: string;
    };
    readonly policy: {
      readonly ingress: { readonly enforcing: boolean; readonly state: string };
      readonly egress: { readonly enforcing: boolean; readonly state: string };
    };
    readonly state: string;
    readonly 'named-ports'?: readonly { readonly name: string; readonly port: number; readonly protocol: string }[];
  };
}

/** Failures that one NodePolicyStatus lists: more than the policies that one namespace may have, so that one tenant's hide no other's. */
export const MOST_REPORTED_FAILURES = 2_000;
/** Failures whose message it has; of others it says where that is. */
export const MOST_REPORTED_MESSAGES = 50;

export interface NodeCounts {
  /** Endpoints of the node. */
  readonly endpoints: number;
  /** Policies that the node has read. */
  readonly policies: number;
}

/** weir.dev/v1alpha1 NodePolicyStatus, cluster; name = node name; written by that node's agent, at most once a second. */
export interface NodePolicyStatus extends KubeObject {
  readonly status: {
    /**
     * The resourceVersion up to which every change of a ResolvedPolicy is in the node's kernel, but for failures. Absent: the node enforces
     * nothing any more.
     */
    readonly policyVersion?: string;
    /** The agent's policy revision when this was written. */
    readonly revision: number;
    readonly counts: NodeCounts;
    /** What this node could not do, by uid of the policy, in order; the first of them. `generation` is the one that failed. */
    readonly failures: readonly {
      readonly uid: string;
      readonly generation: number;
      readonly reason: string;
      readonly message: string;
    }[];
    /** How many failures there are. */
    readonly failureCount: number;
  };
}
