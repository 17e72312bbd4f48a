/**
 * The agent's tables: inputs, and what it derives from them. Inputs are written by `kubernetes/`, `api/` and
 * `cni/`; derived tables by `derive/` only; the kernel by `datapath/` only.
 */
import type { PolicyStatus } from '@weir/kube';
import type { LabelMap, LabelSelector } from '@weir/labels';
import type { CompiledPolicy, Decision, ResolvedRule, SelectorHash } from '@weir/policy';

// ---- inputs ----

/**
 * One policy with its resolved rules: a ResolvedPolicy of the cluster, or rules imported over the socket. Key: `uid`. Index
 * `peerSet`: those that it names.
 */
export interface PolicyRow {
  readonly uid: string;
  readonly kind: 'CiliumNetworkPolicy' | 'CiliumClusterwideNetworkPolicy' | 'NetworkPolicy' | 'BareRules';
  readonly namespace?: string;
  readonly name: string;
  readonly generation: number;
  readonly rules: readonly ResolvedRule[];
}

/** What the operator says of a whole policy: for kinds whose objects have no status of their own. Plain JSON. */
export type PolicyStatusJson = PolicyStatus;

/** The cluster's conditions of a policy (ResolvedPolicy.status). Nothing is derived from it. Key: `uid`. */
export interface PolicyStatusRow {
  readonly uid: string;
  readonly status: PolicyStatusJson;
}

/** A ResolvedPolicy whose rules cannot be read, so that its former rules stay in force. Key: `uid`. */
export interface UnreadPolicyRow {
  readonly uid: string;
  readonly generation: number;
  readonly problem: string;
}

/**
 * Policy inputs up to `revision` (the agent's policy revision) hold every change of a ResolvedPolicy up to the API server's
 * `version`. Key: `revision`. Rows go when the kernel has what they say, but for the last.
 */
export interface PolicyVersionRow {
  readonly revision: number;
  readonly version: string;
}

/** One selector's identities, all slices merged. Key: `hash`. Absent while a slice is missing. */
export interface PeerSetRow {
  readonly hash: SelectorHash;
  readonly selector: LabelSelector;
  /** Cluster identities, ascending, as the operator lists them. Labels decide where they are known (derive/peer-set-views.ts). */
  readonly identities: readonly number[];
  /** `cluster`: from the operator. `local`: of imported rules, which nobody lists. */
  readonly origin: 'cluster' | 'local';
}

/** A cluster identity, or a label set of this node only (top byte 0x03). Key: `id`. Indexes: `labels` on `labelsKey`, `namespace`. */
export interface IdentityRow {
  readonly id: number;
  readonly labels: LabelMap;
  readonly labelsKey: string;
}

/** A container port that has a name. `name` as the pod's specification writes it. */
export interface ContainerPort {
  readonly name: string;
  readonly port: number;
  readonly protocol: 'TCP' | 'UDP' | 'SCTP';
}

/** A pod's address anywhere in the cluster. Key: `namespace/name`. Indexes: `identity`, `address`. */
export interface RemoteEndpointRow {
  readonly namespace: string;
  readonly name: string;
  readonly addresses: readonly string[];
  readonly identity: number;
  readonly node: string;
  readonly namedPorts: readonly ContainerPort[];
  /** Absent where the operator does not say it: then no identity outlives its row. */
  readonly podUid?: string;
}

/** Key: `name`. */
export interface NodeRow {
  readonly name: string;
  /** That it reports of itself: its kubelet writes them. */
  readonly addresses: readonly string[];
  /** That its agent found beside those in its kernel. Absent: none. Of this node the kernel is asked (node-addresses/types.ts). */
  readonly furtherAddresses?: readonly string[];
  /** Of its pods; nobody changes them once they are set. Another node's count where no older node has some of them. */
  readonly podCidrs: readonly string[];
  /** An API server is at one of its addresses. */
  readonly kubeApiserver: boolean;
  readonly zone?: string;
  /** Absent: none. */
  readonly labels?: Readonly<Record<string, string>>;
}

/** An identity of addresses outside: what names they have been looked up by. */
export interface NameIdentityRow {
  readonly identity: number;
  /** Patterns of `toFQDNs` that the names are of, canonical, ascending. */
  readonly patterns: readonly string[];
}

/** Rules of a kind let less pass on this node than they say, for want of what decides their flows. Key: `proxy`. */
export interface ProxyFaultRow {
  /** `dns`: rules that name what may be asked of DNS, and those whose peers are names; `names`: the latter alone. */
  readonly proxy: 'dns' | 'names';
  readonly reason: 'DnsProxyFailing' | 'NamesExceeded';
  readonly message: string;
}

/** A pod scheduled to this node. Key: `namespace/name`. Index `address`. */
export interface LocalPodRow {
  readonly namespace: string;
  readonly name: string;
  /** By which the runtime knows its sandbox. */
  readonly uid: string;
  /** Of the API object, where that only mirrors a static pod. */
  readonly mirrorUid?: string;
  readonly labels: Readonly<Record<string, string>>;
  /** A static pod has none. */
  readonly serviceAccount: string | undefined;
  /** Of its containers and of init containers that keep running, in the order of the specification. */
  readonly namedPorts: readonly ContainerPort[];
  /** By how much the named ports are too many, in words: then none is kept, and nobody knows the pod. */
  readonly portExcess?: string;
  /** Those that it may hold: of a finished pod none, once its sandbox is gone. */
  readonly addresses: readonly string[];
}

/** Key: `name`. */
export interface NamespaceRow {
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
}

/** Addresses of API servers, as they report them (entity kube-apiserver). Key: `address`. */
export interface ApiserverAddressRow {
  readonly address: string;
}

/** A Service's own addresses, by which events name it: nothing is enforced by them. Key: `namespace/name`. Index `address`. */
export interface ServiceRow {
  readonly namespace: string;
  readonly name: string;
  /** Of the cluster, external ones and those of load balancers; none of a headless Service. */
  readonly addresses: readonly string[];
}

/** A local endpoint: one pod interface. Key: `id` (1..65535). Indexes: `ifindex`, `address`, `pod`, `container`, `found`, `stray`. Persisted in the state folder. */
export interface EndpointRow {
  readonly id: number;
  /** Host-side interface in the node's network namespace. */
  readonly ifindex: number;
  readonly interfaceName: string;
  /** Canonical, at most one of each family, IPv4 first. Of a family without one no packet of the pod has a source that is its own. */
  readonly addresses: readonly string[];
  readonly mac?: string;
  readonly hostMac?: string;
  readonly containerId?: string;
  readonly containerInterface?: string;
  readonly netns?: string;
  readonly pod?: { readonly namespace: string; readonly name: string; readonly uid?: string };
  /** Labels given with the endpoint (API, no pod): its identity is then of this node only unless the cluster has one. */
  readonly labels?: LabelMap;
  /** No file knew it: it was found in the kernel, with this identity, or as an interface of the CNI plugin's (identity 0). */
  readonly found?: { readonly identity: number };
  /** Since when its interface has been gone. It is in no kernel table then. */
  readonly gone?: string;
  readonly createdAt: string;
}

// ---- derived ----

/** What this agent tells of a pod of its node, or of the node, as an Event. Key: `key` (object, uid and reason). */
export interface PodEventRow {
  readonly key: string;
  readonly pod: { readonly namespace: string; readonly name: string; readonly uid: string };
  /** It is about the node of the name. */
  readonly node?: true;
  readonly reason: string;
  readonly message: string;
  readonly count: number;
  /** Milliseconds since 1970. */
  readonly first: number;
  readonly last: number;
}

/** One row per prefix; sources merged by precedence in the order above, an endpoint of this node before all. Key: `prefix` (canonical). */
export interface IpcacheRow {
  readonly prefix: string;
  readonly identity: number;
  /** Address of the node of a pod on another node, as its slice has it. */
  readonly node?: string;
  /** `endpoint`, `host`, `remote-node`, `apiserver`, `pod-cidr`, `cidr`, `world`, or what a part calls its addresses. */
  readonly source: string;
  /** While rules change in the same round: the identity to endpoints whose revision is older than `since`. */
  readonly before?: { readonly identity: number; readonly since: number };
}

/** A compiled policy of one shape, and the kernel slot it has. Key: `slot` (1..4095; 0 = no policy). */
export interface SlotRow {
  readonly slot: number;
  /** Names the rule set (policy uids, generations, rules that select): equal shape = shared slot. */
  readonly shape: string;
  readonly compiled: CompiledPolicy;
  /** Class numbers as given out: they survive membership changes. identity -> class per direction; class -> rows. */
  readonly classes: Readonly<Record<'ingress' | 'egress', ReadonlyMap<number, number>>>;
  /** Changes whenever a decision of this slot may differ for some peer. */
  readonly epoch: number;
}

/** What the kernel is to hold for a local endpoint; what it holds is in `kernelEndpoints`. Key: `id`. */
export interface EndpointStateRow {
  readonly id: number;
  readonly ifindex: number;
  readonly addresses: readonly string[];
  readonly identity: number;
  readonly labels: LabelMap;
  readonly slot: number;
  readonly enforced: Readonly<Record<'ingress' | 'egress', boolean>>;
  /** Datapath revision: grows whenever a decision for this endpoint may differ; established flows are then judged again. */
  readonly revision: number;
  /** Policies that select it: uid -> generation. */
  readonly policies: Readonly<Record<string, number>>;
  readonly state: 'waiting-for-identity' | 'ready' | 'not-ready';
  readonly reason?: string;
}

// ---- what the kernel acknowledged, written by `datapath/` ----

/** An endpoint as the kernel was found to have it at the agent's start. */
export interface KernelEndpoint {
  readonly id: number;
  readonly ifindex: number;
  readonly addresses: readonly string[];
  /** As events name it. */
  readonly identity: number;
  readonly slot: number;
  readonly revision: number;
  readonly enforced: EndpointStateRow['enforced'];
}

/** Ports of a class, as the kernel's trie holds them, with one decision. */
export type VerdictBlock = Decision & {
  readonly protocol: number;
  readonly port: number;
  /** Leading bits of the port that are matched, 0..16. */
  readonly bits: number;
  /** Of the rule; of a prefix the class of its addresses. */
  readonly cookie: number;
  /** Instead of ports: addresses. */
  readonly prefix?: string;
  /** Whose these must be. */
  readonly identity?: number;
};

export type PerDirection<T> = Readonly<Record<'ingress' | 'egress', T>>;

/** What the kernel holds of a slot, or is to hold. */
export interface SlotContent {
  /** Class number by identity. */
  readonly elements: PerDirection<ReadonlyMap<number, number>>;
  /** Blocks by class number; from ADDRESS_CLASSES on those of classes of addresses, and at ADDRESSES their prefixes. */
  readonly rows: PerDirection<ReadonlyMap<number, readonly VerdictBlock[]>>;
}

/** An endpoint that the kernel has. Key: `id`. Indexes: `slot`, `ifindex`, `doubted`, `quarantined`. */
export interface KernelEndpointRow {
  readonly id: number;
  readonly ifindex: number;
  readonly slot: number;
  /** Packets have passed its interface unjudged, or its flows were lost, so that nobody knows who began its flows: they are still to be gone through. */
  readonly doubted: boolean;
  /** Since when it is in quarantine for that reason (layout.h), in milliseconds of a clock that only grows. */
  readonly quarantined?: number;
  /** What was found at start, until the kernel acknowledges something else. */
  readonly found?: KernelEndpoint;
  /** What the kernel acknowledged: element, programs and links. */
  readonly acknowledged?: EndpointStateRow;
  /** What its element was given last: `acknowledged`, or what follows it and has no programs or pins yet. */
  readonly written?: EndpointStateRow;
  /** The revision of what the kernel refused last. */
  readonly refused?: number;
}

/** Something that was acknowledged and is not in the kernel any more. Key: `part`, `of`. */
export interface EnforcementFault {
  readonly part: 'endpoint' | 'pins' | 'address' | 'slot';
  /** Id of the endpoint, prefix, number of the slot; empty for pins, `?` where the part cannot be looked at. */
  readonly of: string;
  readonly problem: string;
  /** Why it could not be put back; absent when that cannot be tried, as it cannot be looked at. */
  readonly error?: string;
}

/** An endpoint that the kernel does not have as wanted, as of the last round. Key: `id`. */
export interface LaggingEndpointRow {
  readonly id: number;
  /** The agent's policy revision that the kernel has of it; 0: none of this start. */
  readonly revision: number;
}
