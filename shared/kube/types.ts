/**
 * The typed objects that Weir reads and writes, and the contract of the client and reflector. Only this folder talks to
 * the API server.
 */

import type { LabelMap, LabelSelector } from '@weir/labels';
import type { PolicyKind, ResolvedRule, SelectorHash } from '@weir/policy';
import type { BackoffOptions } from '@weir/reconciler/backoff';
import type { ServerPulse } from './pulse.ts';

export interface ObjectMeta {
  readonly name: string;
  readonly namespace?: string;
  readonly uid?: string;
  readonly resourceVersion?: string;
  readonly generation?: number;
  readonly labels?: Readonly<Record<string, string>>;
  readonly annotations?: Readonly<Record<string, string>>;
  readonly creationTimestamp?: string;
  readonly deletionTimestamp?: string;
  readonly ownerReferences?: readonly object[];
}

export interface KubeObject {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: ObjectMeta;
}

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

/** networking.k8s.io/v1 NetworkPolicy. It has no status. The spec stays raw JSON here, as of the Cilium policies. */
export interface NetworkPolicyObject extends KubeObject {
  readonly spec?: unknown;
}

/** cilium.io/v2 CiliumIdentity; the name is the decimal number. */
export interface CiliumIdentity extends KubeObject {
  /** `source:key` -> value, the identity's labels. */
  readonly 'security-labels': LabelMap;
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

/** On the API's mirror of a static pod: the pod's uid, by which kubelet has its sandbox made. Nodes may create no other pods, and nobody may change it. */
export const MIRROR_POD_ANNOTATION = 'kubernetes.io/config.mirror';

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

/** Failures that one NodePolicyStatus lists. */
export const MOST_REPORTED_FAILURES = 50;

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

export interface Container {
  readonly name: string;
  readonly ports?: readonly {
    readonly name?: string;
    readonly containerPort: number;
    readonly protocol?: string;
  }[];
}
export interface Pod extends KubeObject {
  readonly spec?: {
    readonly nodeName?: string;
    readonly hostNetwork?: boolean;
    readonly serviceAccountName?: string;
    readonly containers?: readonly Container[];
    /** Those with restartPolicy Always go on running beside the containers. */
    readonly initContainers?: readonly (Container & { readonly restartPolicy?: string })[];
  };
  readonly status?: {
    readonly phase?: string;
    readonly podIP?: string;
    readonly podIPs?: readonly { readonly ip: string }[];
    readonly hostIP?: string;
    readonly conditions?: readonly { readonly type: string; readonly status: string }[];
  };
}
export interface Namespace extends KubeObject {}
export interface Service extends KubeObject {
  readonly spec?: {
    readonly type?: string;
    readonly selector?: Readonly<Record<string, string>>;
    readonly clusterIPs?: readonly string[];
    readonly externalIPs?: readonly string[];
    readonly ports?: readonly {
      readonly name?: string;
      readonly protocol?: string;
      readonly port: number;
      readonly nodePort?: number;
    }[];
    readonly sessionAffinity?: string;
    readonly sessionAffinityConfig?: { readonly clientIP?: { readonly timeoutSeconds?: number } };
    readonly publishNotReadyAddresses?: boolean;
    readonly internalTrafficPolicy?: string;
    readonly externalTrafficPolicy?: string;
    readonly healthCheckNodePort?: number;
    readonly loadBalancerSourceRanges?: readonly string[];
  };
  readonly status?: {
    readonly loadBalancer?: { readonly ingress?: readonly { readonly ip?: string; readonly ipMode?: string }[] };
  };
}
export interface KubeNode extends KubeObject {
  readonly spec?: { readonly podCIDR?: string; readonly podCIDRs?: readonly string[] };
  readonly status?: {
    readonly addresses?: readonly { readonly type: string; readonly address: string }[];
    readonly conditions?: readonly NodeCondition[];
  };
}
export interface NodeCondition {
  readonly type: string;
  readonly status: string;
  readonly reason?: string;
  readonly message?: string;
  /** RFC 3339. */
  readonly lastHeartbeatTime?: string;
  readonly lastTransitionTime?: string;
}

/** A kind that can be requested: where it is served. */
export interface Resource<T extends KubeObject> {
  readonly group: string;
  readonly version: string;
  readonly kind: string;
  readonly plural: string;
  readonly namespaced: boolean;
  /** Never set; carries the type. */
  readonly _type?: T;
}

export interface ListOptions {
  readonly namespace?: string;
  readonly labelSelector?: string;
  readonly fieldSelector?: string;
  readonly signal?: AbortSignal;
}

/** Requests. Every failure is an `ApiError` with status, reason, message, retryAfterMs. */
export interface KubeClient {
  get<T extends KubeObject>(resource: Resource<T>, name: string, namespace?: string, signal?: AbortSignal): Promise<T>;
  list<T extends KubeObject>(
    resource: Resource<T>,
    options?: ListOptions,
  ): Promise<{ readonly items: readonly T[]; readonly resourceVersion: string }>;
  create<T extends KubeObject>(resource: Resource<T>, object: T): Promise<T>;
  /** With `subresource: 'status'` the status alone; what others had put there goes. Conflicts when `object` is not the newest. */
  replace<T extends KubeObject>(
    resource: Resource<T>,
    object: T,
    options?: { readonly subresource?: 'status' },
  ): Promise<T>;
  /** Server-side apply. `subresource: 'status'` applies the status. */
  apply<T extends KubeObject>(
    resource: Resource<T>,
    object: T,
    options: { readonly fieldManager: string; readonly force?: boolean; readonly subresource?: 'status' },
  ): Promise<T>;
  delete<T extends KubeObject>(
    resource: Resource<T>,
    name: string,
    namespace?: string,
    options?: { readonly uid?: string; readonly resourceVersion?: string; readonly gracePeriodSeconds?: number },
  ): Promise<void>;
  /** One page of a list. `continueToken` absent: the last page. */
  listPage<T extends KubeObject>(
    resource: Resource<T>,
    options: ListOptions & { readonly limit: number; readonly continueToken?: string },
  ): Promise<ListPage<T>>;
  /**
   * Changes after `resourceVersion`, with bookmarks. Calls `accepted` when the server has accepted the watch. Ends when the
   * server closes the stream or `signal` aborts; throws an ApiError (`gone` when the version is too old). Leaving the iteration
   * closes the connection.
   */
  watch<T extends KubeObject>(
    resource: Resource<T>,
    options: ListOptions & { readonly resourceVersion: string; readonly accepted?: () => void },
  ): AsyncIterable<WatchEvent<T>>;
  /** Closes idle connections. Requests made afterwards still work. */
  close(): void;
  /** Tells when the server answers again. Absent: nobody is woken early. */
  readonly pulse?: Pick<ServerPulse, 'recoveries'>;
}

/** Says whether something may still be written. */
export interface WriteFence {
  /** Aborted when it may not any more: ends the writes under way, which then throw its reason. */
  readonly signal: AbortSignal;
  /** Throws when it may not. Called right before a write is sent. */
  readonly check: () => void;
}

/** A client some of whose users may lose the right to write, or have less time than others. */
export interface FencingClient {
  /** The same connections, for one who writes only as long as `fence` lets it. Reads are not held. */
  fenced(fence: WriteFence): KubeClient;
  /** The same connections, with `timeoutMs` milliseconds for each request. */
  within(timeoutMs: number): KubeClient & KubeReviewer;
}

/** Changes of a few members of an object that others write too. */
export interface KubePatcher {
  /**
   * JSON merge patch (RFC 7386): members of `patch` replace those of the object, null removes one, lists are replaced whole.
   * Gives the object after the change; with a subresource, what that one answers (a Scale for `scale`). With
   * `metadata.resourceVersion` in the patch it conflicts when the object is not that version.
   */
  patch<T extends KubeObject>(
    resource: Resource<T>,
    name: string,
    patch: Readonly<Record<string, unknown>>,
    options?: { readonly namespace?: string; readonly subresource?: 'status' | 'scale' },
  ): Promise<KubeObject>;
}

/** Questions that the API server answers and does not keep. */
export interface KubeReviewer {
  /** Whose token it is, or what somebody may: the `status` of the answer to an object with this `spec`. */
  review(kind: 'TokenReview' | 'SubjectAccessReview', spec: object): Promise<unknown>;
}

export interface ListPage<T extends KubeObject> {
  readonly items: readonly T[];
  readonly resourceVersion: string;
  readonly continueToken?: string;
}

/** `BOOKMARK` carries only a resourceVersion. */
export interface WatchEvent<T extends KubeObject> {
  readonly type: 'ADDED' | 'MODIFIED' | 'DELETED' | 'BOOKMARK';
  readonly object: T;
}

/** coordination.k8s.io/v1 Lease. Times are RFC 3339 with microseconds. */
export interface Lease extends KubeObject {
  readonly spec?: {
    readonly holderIdentity?: string;
    readonly leaseDurationSeconds?: number;
    readonly acquireTime?: string;
    readonly renewTime?: string;
    readonly leaseTransitions?: number;
  };
}

/** discovery.k8s.io/v1 EndpointSlice. */
export interface EndpointSlice extends KubeObject {
  readonly addressType: 'IPv4' | 'IPv6' | 'FQDN';
  readonly endpoints: readonly {
    readonly addresses: readonly string[];
    readonly conditions?: { readonly ready?: boolean; readonly serving?: boolean; readonly terminating?: boolean };
    readonly nodeName?: string;
    readonly hints?: {
      readonly forZones?: readonly { readonly name: string }[];
      readonly forNodes?: readonly { readonly name: string }[];
    };
    readonly targetRef?: { readonly kind?: string; readonly namespace?: string; readonly name?: string };
  }[];
  readonly ports?: readonly { readonly name?: string; readonly port?: number; readonly protocol?: string }[];
}

export interface CustomResourceDefinition extends KubeObject {
  readonly spec: {
    readonly group: string;
    readonly names: { readonly kind: string; readonly plural: string };
    readonly versions: readonly { readonly name: string }[];
  };
  readonly status?: { readonly conditions?: readonly { readonly type: string; readonly status: string }[] };
}

/** v1 Event. */
export interface KubeEvent extends KubeObject {
  readonly involvedObject: {
    readonly kind?: string;
    readonly namespace?: string;
    readonly name?: string;
    readonly uid?: string;
    readonly apiVersion?: string;
  };
  readonly reason?: string;
  readonly message?: string;
  readonly type?: string;
  readonly count?: number;
  readonly firstTimestamp?: string;
  readonly lastTimestamp?: string;
  readonly source?: { readonly component?: string; readonly host?: string };
}

/** Where a reflector puts what it sees; called synchronously, in order. A throw is isolated and reported, and the list is repeated. */
export interface ReflectorSink<T extends KubeObject> {
  /** The complete state (first list, or a relist after a gap): the sink diffs. */
  replace(items: readonly T[], resourceVersion: string): void;
  upsert(item: T): void;
  delete(item: T): void;
  /** First complete list delivered. */
  synced?(): void;
}

export interface ReflectorOptions<T extends KubeObject> {
  readonly client: KubeClient;
  readonly resource: Resource<T>;
  readonly sink: ReflectorSink<T>;
  readonly list?: Omit<ListOptions, 'signal'>;
  /** Objects of one page of a list, which is in memory as a whole. Default: 500. */
  readonly pageSize?: number;
  /** Reduces an object to what is kept in memory. Default: takes away its managed fields. */
  readonly trim?: (object: T) => T;
  readonly onError?: (error: Error, context: { readonly resource: string; readonly retryInMs: number }) => void;
  /** Called after each list, after each event of a watch (bookmarks too), and when a watch without any has lasted for a second. Must not throw. */
  readonly onFollowing?: () => void;
  /** Watch is renewed when nothing (not even a bookmark) arrived for this long. Default 90_000 ms. */
  readonly idleTimeoutMs?: number;
  /** Waits after failures; a recovery of the server ends them. Default 200 ms to 5 s. */
  readonly backoff?: BackoffOptions;
}

export interface Reflector {
  start(): void;
  stop(): Promise<void>;
  readonly synced: boolean;
  /** Since when the sink may not have what the API server has, in milliseconds of `performance.now()`; undefined: it follows. */
  readonly staleSince: number | undefined;
}
