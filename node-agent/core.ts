/**
 * The agent's core as the API, CLI, CNI and Kubernetes glue see it. Built by `createCore` (derive/ and datapath/ behind it).
 */
import type { MapSpec, ProgramObject } from '@weir/bpf';
import type { LabelMap } from '@weir/labels';
import type { ParseResult, PortNames, ResolvedRule } from '@weir/policy';
import type { FailureRow, HealthRow, Reconciler } from '@weir/reconciler';
import type { StateDB, Table } from '@weir/statedb';
import type { BpfMap } from 'libbpf-ts';
import type { Observable } from 'rxjs';
import type { AddressRecord } from './state/address-record.ts';
import type { Loaded } from './state/persist.ts';
import type {
  ApiserverAddressRow,
  EndpointRow,
  EndpointStateRow,
  EnforcementFault,
  IdentityRow,
  IpcacheRow,
  KernelEndpointRow,
  LaggingEndpointRow,
  LocalPodRow,
  NameIdentityRow,
  NamespaceRow,
  NodeRow,
  PeerSetRow,
  PodEventRow,
  PolicyRow,
  PolicyStatusRow,
  PolicyVersionRow,
  ProxyFaultRow,
  RemoteEndpointRow,
  ServiceRow,
  SlotContent,
  SlotRow,
  UnreadPolicyRow,
} from './tables.ts';

export interface CoreOptions {
  readonly nodeName: string;
  readonly clusterName: string;
  /** Where maps, programs and links are pinned. Default /sys/fs/bpf/weir. */
  readonly bpfRoot: string;
  /** Survives restarts: endpoints, imported rules, CIDR identity numbers. Default /var/run/weir/state. */
  readonly stateDir: string;
  readonly policyMode: 'default' | 'always' | 'never';
  readonly allowLocalhost: boolean;
  /** Without Kubernetes every input table but `endpoints` and imported rules is complete (empty) at once. */
  readonly kubernetes: boolean;
  /** Where the tables are made. Default: a database of its own. */
  readonly db?: StateDB;
  /** Network namespace of the node (`/proc/1/ns/net`), when the agent runs in another. Default: its own. */
  readonly nodeNetns?: string;
  readonly kernel?: KernelOptions;
  /** What other parts of the agent bring; asked for at the start. */
  readonly brought?: () => Brought;
  /** The core cannot go on and the agent must restart; what is in the kernel stays enforced. */
  readonly onLost?: (error: Error) => void;
  readonly log: Logger;
}

/** What parts bring that the core puts in force with its own. */
export interface Brought {
  /** Programs, in objects of their own. */
  readonly objects?: readonly ProgramObject[];
  readonly addresses?: readonly AddressSource[];
  readonly steps?: readonly PlanStep[];
}

/** An address that a part knows. `identity` absent: the prefix gets a number of this node, as a CIDR of a rule does. */
export interface AddressRow {
  /** An address or CIDR of either family. */
  readonly prefix: string;
  readonly identity?: number;
}

/**
 * Addresses of a part, for the ipcache. Nothing is put in force before the table is complete. Of several sources that know a prefix the first in the order
 * of derive/ipcache.ts counts.
 */
export interface AddressSource<Row extends AddressRow = AddressRow> {
  /** As column `source` of table `ipcache` says it. */
  readonly name: string;
  /** The source of the core that it comes after in that order. */
  readonly after: 'local' | 'host' | 'remote-node' | 'endpoint' | 'apiserver' | 'pod-cidr' | 'cidr';
  readonly table: Table<Row>;
}

/** Work of a part in each plan, between the steps of derive/plan-steps.ts. */
export interface PlanStep {
  readonly name: string;
  /** Name of the step that it follows. */
  readonly after: string;
  /** Returns whether another plan has to follow. The plan waits for it, for at most 10 s; what it throws is logged, and the step is retried. */
  run(): boolean | Promise<boolean>;
}

/** What is in the kernel, beside what policies say. */
export interface KernelOptions {
  /** Compiled datapath object; built from source when absent. */
  readonly datapathObject?: string;
  /** Room of the map of connections. */
  readonly ctEntries?: number;
  /** Maps that other parts of the agent keep beside those of the datapath: pinned, looked after and shown as these. */
  readonly maps?: readonly MapSpec[];
  /** The node's root cgroup of version 2. Default: where one is mounted. */
  readonly cgroupRoot?: string;
  /** How programs get onto interfaces. Default: tcx links where the kernel has them (6.6), else clsact filters. */
  readonly attachment?: 'tcx' | 'clsact';
  /** How often the kernel is compared with what it acknowledged, in milliseconds. Default 5000. */
  readonly auditMs?: number;
}

export interface Logger {
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
  debug(fields: object, message: string): void;
}

/** Each with the names of its indexes. */
export interface Tables {
  readonly policies: Table<PolicyRow, 'peerSet'>;
  /** What the operator says of policies, for people: no input of what is enforced. */
  readonly policyStatuses: Table<PolicyStatusRow, never>;
  /** For the node's report, as `policyVersions`. */
  readonly unreadPolicies: Table<UnreadPolicyRow, never>;
  /** Written by parts of the agent; for the node's report, as `policyVersions`. */
  readonly proxyFaults: Table<ProxyFaultRow, never>;
  /** How far the policies have been read, for the node's report: no input of what is enforced. */
  readonly policyVersions: Table<PolicyVersionRow, never>;
  readonly peerSets: Table<PeerSetRow, never>;
  readonly identities: Table<IdentityRow, 'labels' | 'namespace'>;
  readonly remoteEndpoints: Table<RemoteEndpointRow, 'identity' | 'address'>;
  readonly nodes: Table<NodeRow, never>;
  /** Identities of names that addresses have: what the part of DNS gives out. */
  readonly nameIdentities: Table<NameIdentityRow, 'pattern'>;
  readonly localPods: Table<LocalPodRow, 'address'>;
  readonly namespaces: Table<NamespaceRow, never>;
  readonly apiserverAddresses: Table<ApiserverAddressRow, never>;
  /** For people, as `policyStatuses`. */
  readonly services: Table<ServiceRow, 'address'>;
  readonly endpoints: Table<EndpointRow, 'ifindex' | 'address' | 'pod' | 'found' | 'stray'>;
  readonly ipcache: Table<IpcacheRow, 'changing'>;
  readonly slots: Table<SlotRow, never>;
  readonly endpointStates: Table<EndpointStateRow, never>;
  /** What the kernel acknowledged of `endpointStates`, or was found to have. */
  readonly kernelEndpoints: Table<KernelEndpointRow, 'slot' | 'ifindex' | 'doubted' | 'quarantined'>;
  /** What the kernel refuses of `slots`, `ipcache` and `endpointStates`: reconcilers `kernel-slots`, `kernel-ipcache`, `kernel-endpoints`. */
  readonly kernelFailures: Table<FailureRow, 'reconciler'>;
  readonly kernelReconcilers: Table<HealthRow, never>;
  /** What others took away of what the kernel acknowledged. */
  readonly enforcementFaults: Table<EnforcementFault, never>;
  readonly laggingEndpoints: Table<LaggingEndpointRow, never>;
  /** Written by parts of the agent, sent by `kubernetes/`. */
  readonly podEvents: Table<PodEventRow, never>;
  /** Events of the node that came too soon after the last one of their reason, until they are due. */
  readonly delayedNodeEvents: Table<PodEventRow, never>;
}

/** What names what the kernel reports by numbers. */
export interface Naming {
  labelsOf(identity: number): LabelMap | undefined;
  /** The prefix that a local CIDR identity stands for. */
  prefixOf(identity: number): string | undefined;
  /** Whose an address is: `local 7`, `remote ns/pod`, `node name`, ... */
  ownerOf(prefix: string): string | undefined;
  endpoint(id: number): { readonly identity: number; readonly row: EndpointRow } | undefined;
  /** Rules that the kernel judges the endpoint by, each with its policy. */
  rulesOf(endpoint: number): Iterable<readonly [PolicyRow, ResolvedRule]>;
  /** What rules by port name mean for each peer. */
  readonly portNames: Omit<Required<PortNames>, 'own'>;
}

/** A policy that selects a local endpoint. */
export interface PolicyInKernel {
  /** The generation that every endpoint which the policy selects has in the kernel; 0 while one of them has none. */
  readonly generation: number;
  readonly endpoints: number;
}

/** One thing that the core looks after. */
export interface HealthCheck {
  readonly name: string;
  readonly ok: boolean;
  /** The agent does its work, and something is not as it should be all the same: a person may have to act. */
  readonly warning?: boolean;
  readonly message: string;
}

/** What this node has in its kernel, for NodePolicyStatus. */
export interface Realised {
  /** Policy inputs up to here have been through a round; of what the kernel refused, see `acknowledged` and `failures`. */
  readonly revision: number;
  /** Policy inputs up to here are in the kernel, but at what `laggingEndpoints` names. */
  readonly settled: number;
  /** Policy inputs up to here are in the kernel at every endpoint. */
  readonly acknowledged: number;
  /** Every change of a ResolvedPolicy up to this resourceVersion is in the kernel, but for `failures`; undefined: none was read yet. */
  readonly policyVersion?: string | undefined;
  /** The last such version that changed a policy of an endpoint of this node. */
  readonly ownVersion?: string | undefined;
  /** Endpoints of the node, and policies that it has read. */
  readonly counts: { readonly endpoints: number; readonly policies: number };
  readonly failures: readonly {
    readonly uid: string;
    readonly generation: number;
    readonly reason: string;
    readonly message: string;
  }[];
}

/** Why nothing new is put in force. */
export interface RulesWait {
  /** `ImportedRulesUnknown`: somebody must say which there are. `InputsIncomplete`: something has not come for half a minute. */
  readonly reason: 'ImportedRulesUnknown' | 'InputsIncomplete';
  readonly message: string;
}

export interface ImportedRule {
  readonly labels: readonly string[];
  readonly json: unknown;
}

/** Files of the state folder, as parts of the agent see them. */
export interface AgentFiles {
  /** Says what the file is to hold from now on. Without it nothing is written. */
  provide(name: 'addresses', content: () => AddressRecord): void;
  /** Sets a file aside that cannot be used, and logs it. Never throws. */
  load(name: 'addresses'): Loaded<AddressRecord>;
  /** What the file is to hold has changed. Resolves to whether it is on disk, or false where the disk does not answer. Never rejects. */
  save(name: 'addresses'): Promise<boolean>;
  /** Resolves when all that has changed until now is on disk, or the disk has refused it or does not answer. */
  saved(): Promise<void>;
  /** Why the newest content of the file is not on disk; undefined: it is. */
  unsaved(name: 'rules'): string | undefined;
}

/** What `Core.verify` found. */
export interface Verification {
  readonly seconds: number;
  /** What was not as it was made, and is put back. `last`: in words. */
  readonly mended: readonly {
    readonly part: EnforcementFault['part'];
    readonly count: number;
    readonly last: string;
  }[];
  /** What cannot be put back, or not be looked at, in words. */
  readonly faults: readonly string[];
  /** Entries that were not compared, as the kernel had not taken them. */
  readonly left: number;
}

/** Who has as many entries of the connection tables as one may: what else they begin takes the place of an unanswered flow of theirs, or passes untracked. */
export interface SpentShares {
  /** Ids of endpoints. */
  readonly endpoints: readonly number[];
  /** Addresses of those who opened flows to endpoints, 10 at most, those with most flows first; of IPv6 one of each /64. 4 or 16 bytes. */
  readonly peers: readonly Uint8Array[];
}

/** Numbers of this node, which survive a restart. Patterns are canonical (host-names.ts of policy). */
export interface ProxyNumbers {
  /** What verdicts name, and the patterns of names that it lets pass. */
  eachListener(): IterableIterator<readonly [listener: number, patterns: readonly string[]]>;
  /** Every set of patterns that has an identity. */
  eachNames(): Iterable<readonly [identity: number, patterns: readonly string[]]>;
  /** The identity of addresses whose names are of exactly these patterns. */
  names(patterns: readonly string[]): number;
  releaseNames(patterns: readonly string[]): void;
  /** Every number of this node. */
  readonly table: Table<NodeNumber>;
}

/** A number of this node, and what it stands for. `name`: of a listener, and of names, their patterns with a space between them. */
export interface NodeNumber {
  readonly kind: 'cidr' | 'labels' | 'node' | 'names' | 'listener';
  readonly name: string;
  readonly id: number;
}

export interface Core {
  readonly db: StateDB;
  readonly tables: Tables;
  /** What outlives this agent on disk. Whoever answers a request that changed it waits for `saved` first. */
  readonly files: AgentFiles;
  /** Numbers of what proxies are asked, and of names. */
  readonly numbers: ProxyNumbers;
  start(): Promise<void>;
  /** Stops loops and closes descriptors; everything pinned stays and goes on enforcing. */
  stop(): Promise<void>;
  /**
   * Stops, and takes away everything of this agent: programs from interfaces, links, maps, the bpf root and the state folder's
   * files. Nothing is enforced afterwards, and packets flow freely. Idempotent; works on a core that was never started.
   * @throws AgentRunningError when another agent drives the same maps
   */
  remove(): Promise<void>;

  /** Adds or replaces a local endpoint; resolves when its programs are attached and its policy is in the kernel (or rejects, fail closed). */
  upsertEndpoint(endpoint: EndpointRow, options?: { readonly timeoutMs?: number }): Promise<EndpointStateRow>;
  /** Removes it from the kernel and the tables; succeeding when absent. */
  deleteEndpoint(id: number): Promise<boolean>;
  /** A free endpoint id. */
  allocateEndpointId(): number;

  /** Grows with every change of policy input; what `weir policy wait` waits for. */
  policyRevision(): number;
  /** Resolves once everything up to `revision` was given to the kernel; the answer names what it refuses. */
  waitPolicyRevision(
    revision: number,
    signal?: AbortSignal,
  ): Promise<{ readonly revision: number; readonly failing: readonly string[] }>;
  /** Imports bare rules (spec: legacy API form). Problems reject the whole import. Persisted. */
  importRules(
    json: unknown,
    options?: { readonly replace?: boolean; readonly replaceWithLabels?: readonly string[] },
  ): { readonly revision: number; readonly problems: ParseResult['problems'] };
  importedRules(labels?: readonly string[]): readonly ImportedRule[];
  /** Deletes imported rules that carry all the labels; returns how many. While nobody knows which there are, no labels (all) say that there are none. */
  deleteRules(labels: readonly string[]): { readonly revision: number; readonly deleted: number };

  /** What the kernel holds of a policy slot: read back at start, and as acknowledged since; undefined when it has no such slot. */
  kernelSlot(slot: number): SlotContent | undefined;
  /** Identities that this node numbers itself, beside table `identities`: label sets of endpoints, and CIDRs. */
  localIdentities(): Iterable<Pick<IdentityRow, 'id' | 'labels'>>;
  /** Why nothing new is put in force, where that lasts; undefined: it is, or soon will be. */
  rulesWait(): RulesWait | undefined;

  realised(): Realised;
  /** By uid, what the kernel has of the policies that select a local endpoint. */
  policiesInKernel(): ReadonlyMap<string, PolicyInKernel>;
  /** Emits after every change of `realised()`. */
  readonly realisedChanges: Observable<Realised>;
  /** What drives the tables into the kernel; none before start(). */
  reconcilers(): readonly Pick<Reconciler<unknown>, 'name' | 'metrics'>[];
  /** How often each part of what is enforced was taken away by others and put back. */
  repairs(): readonly { readonly part: string; readonly count: number }[];
  /** When all that maps hold was last compared with what was written into them, by kind of content, and how long that took. */
  comparisons(): readonly { readonly part: string; readonly at: string; readonly seconds: number }[];
  /** Who has as many connections as one may. */
  spentShares(): SpentShares;
  /**
   * Looks at programs, links and pins and compares all that maps hold with what was written into them; what is not as it was made is put back.
   * Throws `VerifyLaterError`.
   */
  verify(): Promise<Verification>;
  /** Names of what the kernel reports by numbers. */
  readonly naming: Naming;
  /** Programs tell of allowed new flows, too. */
  setVerbose(on: boolean): void;

  maps(): readonly {
    readonly name: string;
    readonly type: string;
    readonly entries: number;
    readonly maxEntries: number;
    readonly path: string;
  }[];
  /** A pinned map, of the datapath or of a part (`KernelOptions.maps`), open from start() to stop(). Throws `UnknownMapError`. */
  map(name: string): BpfMap;
  /** A map's entries, decoded to readable objects; of policy maps, those of one slot. Throws `UnknownMapError`, `MapTooLargeError`. */
  mapEntries(name: string, slot?: number): readonly { readonly key: object; readonly value: object }[];
  metrics(): readonly {
    readonly reason: string;
    readonly direction: 'ingress' | 'egress';
    readonly packets: bigint;
    readonly bytes: bigint;
  }[];
  health(): {
    readonly ok: boolean;
    readonly checks: readonly HealthCheck[];
  };
}
