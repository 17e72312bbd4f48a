/**
 * The CiliumNetworkPolicy language, and NetworkPolicy of Kubernetes read into the same rules: parse, normalise, resolve, decide, compile. Pure: imports no I/O.
 *
 *   JSON --parse--> Rule --resolve--> ResolvedRule + selectors --compile--> classes and port intervals --> (node-agent) map entries
 *                    |
 *                    +--oracle--> verdict   (slow, obvious, spec 5.2; the fast path must always equal it)
 *
 * Guarantees: an unknown or unsupported field is an error with its JSON path; nothing is ever widened: of an element that
 * cannot be enforced, an allow selects nothing and a deny is taken at its widest; unknown identities are never more allowed than known.
 */
import type { LabelSelector } from '@weir/labels';

/** `NetworkPolicy` is the one of networking.k8s.io/v1. */
export type PolicyKind = 'CiliumNetworkPolicy' | 'CiliumClusterwideNetworkPolicy' | 'NetworkPolicy' | 'BareRules';
export type Direction = 'ingress' | 'egress';
/**
 * What a rule says. What is decided of a flow is a `Decision`. `redirect`: a proxy decides; `authenticate`: it passes once both ends have authenticated. Of
 * authentication there is none yet, and of proxies only that of DNS: nothing passes by the others; yet they outrank a plain allow (spec 5.1, item 4).
 */
export type Verdict = 'allow' | 'deny' | 'redirect' | 'authenticate';

/** Where redirected flows go. */
export interface Listener {
  /** What the node's proxy knows it by: 1..65535; 0: there is no proxy, and nothing passes. */
  readonly port: number;
  /** Among redirects the lowest wins (spec 5.1, item 3): 1..255. */
  readonly priority: number;
}

/** Numbers of what proxies are asked, of one node. */
export interface Listeners {
  /** Of a DNS proxy that answers names of these patterns: equal lists, equal numbers. 0: there is none. */
  ofNames(patterns: readonly string[]): number;
  /** Of one that lets pass what either does; 0 where one of them is 0. */
  union(one: number, other: number): number;
}

/** What is decided of a flow; compared by decision.ts. `authenticate`: it passes when both ends have authenticated. */
export type Decision =
  | { readonly verdict: 'allow' | 'deny' | 'authenticate' }
  | { readonly verdict: 'redirect'; readonly listener: Listener };
export type PortProtocol = 'TCP' | 'UDP' | 'SCTP';
/** Of IPv4 and of IPv6. */
export type IcmpProtocol = 'ICMP' | 'ICMPv6';
/** Protocols of which rules tell nothing apart. */
export type WholeProtocol = 'IGMP' | 'IPIP' | 'IPV6' | 'GRE' | 'ESP' | 'AH' | 'VRRP';
export type RuleProtocol = PortProtocol | IcmpProtocol | WholeProtocol;

/** Entities of spec 3.2. */
export type Entity =
  | 'all'
  | 'world'
  | 'world-ipv4'
  | 'world-ipv6'
  | 'cluster'
  | 'host'
  | 'remote-node'
  | 'kube-apiserver'
  | 'ingress'
  | 'health'
  | 'init'
  | 'unmanaged'
  | 'none';

/** Why a policy object, or a part of it, is not as written. */
export interface PolicyProblem {
  /**
   * `InvalidSpec`: it cannot be read. `BudgetExceeded`: it costs too much. `UnsupportedField`: valid Cilium, not enforced by Weir yet. `Warning`:
   * enforced. What the first three are about allows nothing, and denies all that it may mean (see `ParseResult`).
   */
  readonly code: 'InvalidSpec' | 'BudgetExceeded' | 'UnsupportedField' | 'Warning';
  /** JSON path from the object's root: `spec.egress[2].toPorts[0].ports[1].port`. */
  readonly path: string;
  /** One sentence: what is wrong with the value (quoted), and how to mend it. */
  readonly message: string;
  /** Problems that this one stands for: the last one of many does for those that are not told. Absent: 1. */
  readonly count?: number;
}

/** All ports of a protocol are 0..65535, also where it has none. For a single port, from = to. For ICMP the port is the type, 0..255. */
export interface PortRange {
  readonly protocol: RuleProtocol;
  readonly from: number;
  readonly to: number;
}

/** The port of this name and protocol, as each pod gives it a number. From a CNP in lower case; from a NetworkPolicy as written. */
export interface NamedPort {
  readonly protocol: PortProtocol;
  readonly name: string;
  /** Of a NetworkPolicy: each pod by its own number, also where pods of equal labels give several. */
  readonly each?: true;
}

/** `'name' in port` tells which. */
export type RulePort = PortRange | NamedPort;

/**
 * What port names stand for, seen from one endpoint. Ingress asks for the endpoint's own number. Egress asks by the peer's
 * identity: an allow uses the number only when exactly one is known, a deny uses all of them. To an unknown peer (identity 0)
 * an allow by name allows nothing, and a deny by name denies every number that any identity gives the name.
 */
export interface PortNames {
  /** Number of the endpoint's own container port; undefined: it has none of this name and protocol, and the port matches nothing. */
  own(name: string, protocol: PortProtocol): number | undefined;
  /** Identity -> every number that an endpoint of that identity gives the name, ascending. */
  peers(name: string, protocol: PortProtocol): ReadonlyMap<number, readonly number[]>;
  /** What `peers` has of one identity. Default: by `peers`. */
  of?(identity: number, name: string, protocol: PortProtocol): readonly number[];
  /** Of the pods whose identity has several numbers: the number of each address. Default: none. */
  addresses?(name: string, protocol: PortProtocol): Iterable<NamedAddress>;
  /** Every number in `peers`, each once. Default: by `peers`. */
  every?(name: string, protocol: PortProtocol): Iterable<number>;
}

/** An address of a pod that gives a port name a number. */
export interface NamedAddress {
  /** Of one address, canonical. */
  readonly prefix: string;
  /** Of the pod. */
  readonly identity: number;
  readonly port: number;
}

export interface CidrPeer {
  /** Canonical prefix, host bits masked: `10.0.0.0/8`. */
  readonly cidr: string;
  /** Canonical prefixes inside `cidr`, sorted. */
  readonly except: readonly string[];
}

/** One direction element as written, after parsing and namespace injection. */
export interface RuleElement {
  readonly direction: Direction;
  readonly verdict: Verdict;
  /** `any`: no L3 member but ports given. An empty list selects nobody. */
  readonly peers: 'any' | readonly RulePeer[];
  /** `any`: all protocols and ports, ICMP included. An empty list matches no port. */
  readonly ports: 'any' | readonly RulePort[];
  /** Of a redirect: names that may be asked for, as canonical patterns. Absent: there is no proxy for it. */
  readonly dns?: readonly string[];
  /** Path of the element: `spec.ingress[0]`. */
  readonly path: string;
}

export type RulePeer =
  | { readonly kind: 'endpoints'; readonly selector: LabelSelector }
  /** `everyone`: as an ipBlock of a NetworkPolicy, every address in it. Otherwise neither pods nor nodes (spec 3.3). */
  | { readonly kind: 'cidr'; readonly cidr: CidrPeer; readonly everyone?: true }
  /** Outside addresses that names of the canonical pattern have (host-names.ts). */
  | { readonly kind: 'names'; readonly pattern: string }
  | { readonly kind: 'entity'; readonly entity: Entity };

export interface Rule {
  /** The subject, with the namespace of a CNP injected. */
  readonly subject: LabelSelector;
  readonly elements: readonly RuleElement[];
  /** Effective default deny of each direction (spec 1.1): false when the rule has no element there. */
  readonly defaultDeny: Readonly<Record<Direction, boolean>>;
  /** Whether the rule has any element in the direction (allow or deny). */
  readonly has: Readonly<Record<Direction, boolean>>;
  /** User labels, `source:key=value`, sorted (spec 2.6). */
  readonly labels: readonly string[];
  readonly path: string;
  readonly log?: string;
}

export interface ParseResult {
  /** What has a problem is read fail-closed: an allow selects nothing by it, a deny all that it may mean; the rest stands. Empty when `refused`. */
  readonly rules: readonly Rule[];
  /** Nothing of the object counts: its name or namespace, or whom a rule is about, cannot be read. */
  readonly refused: boolean;
  readonly problems: readonly PolicyProblem[];
  /** What `toServices` names. The rules are as of the Services that were found: they must be read anew when one of these changes. */
  readonly services: readonly ServiceRef[];
  /** What `cidrGroupRef` and `cidrGroupSelector` name; the same holds for them. */
  readonly cidrGroups: readonly CidrGroupRef[];
  /** Whether it has words that depend on the families of addresses; the same holds for `Referents.stack`. */
  readonly byStack: boolean;
}

/** How many families of addresses the pods of a cluster have. */
export type Stack = 'single' | 'dual' | 'unknown';

/** What policies may refer to, as it is now. */
export interface Referents {
  readonly services: ServiceView;
  readonly cidrGroups: CidrGroupView;
  readonly stack: Stack;
}

/** A CiliumCIDRGroup. */
export interface CidrGroup {
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  /** Canonical, each once, ascending. */
  readonly cidrs: readonly string[];
  /** Why it cannot be read whole: then nothing is allowed by it, and what it denies is taken at its widest. */
  readonly unreadable?: string;
}

export interface CidrGroupView {
  get(name: string): CidrGroup | undefined;
  all(): Iterable<CidrGroup>;
}

/** A CIDRSet item's `cidrGroupRef` or `cidrGroupSelector`. */
export interface CidrGroupRef {
  /** `spec.egress[0].toCIDRSet[0].cidrGroupRef`. */
  readonly path: string;
  readonly name?: string;
  readonly selector?: LabelSelector;
  /** Names of the groups that it stands for. */
  readonly found: readonly string[];
}

/** What peers a Service stands for. */
export interface ServicePeers {
  readonly namespace: string;
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  /** Labels of its pods, at least one, in its namespace; absent: it selects none by itself. */
  readonly selector?: Readonly<Record<string, string>>;
  /** Where it has no selector: those of its EndpointSlices, canonical. */
  readonly addresses: readonly string[];
}

/** Services that there are. */
export interface ServiceView {
  get(namespace: string, name: string): ServicePeers | undefined;
  /** Of this name, in any namespace. */
  named(name: string): Iterable<ServicePeers>;
  /** Of a namespace, or all. */
  all(namespace?: string): Iterable<ServicePeers>;
}

/** An item of `toServices`: a Service by name, or those that a selector selects. */
export interface ServiceRef {
  /** `spec.egress[0].toServices[0]`. */
  readonly path: string;
  /** Absent: any. */
  readonly namespace?: string;
  readonly name?: string;
  readonly selector?: LabelSelector;
  /** `namespace/name` of each Service that it stands for. */
  readonly found: readonly string[];
}

/** Hash of a canonical selector: 20 hex digits. Names a PeerSet. */
export type SelectorHash = string;

export type PeerRef =
  | { readonly peerSet: SelectorHash }
  /** Both canonical, as `formatPrefix` writes them. `everyone`: as of `RulePeer`, in allows only. */
  | { readonly cidr: string; readonly except?: readonly string[]; readonly everyone?: true }
  /** As `names` of `RulePeer`. */
  | { readonly fqdn: string }
  | { readonly entity: Entity };

/** One element of a rule with its selectors replaced by references: what nodes receive (ResolvedPolicy.spec.rules[]). Plain JSON. */
export interface ResolvedRule {
  readonly subject: SelectorHash;
  readonly direction: Direction;
  readonly verdict: Verdict;
  /** Absent: any peer. Empty: nobody. */
  readonly peers?: readonly PeerRef[];
  /** Absent: every protocol and port. Empty: none. */
  readonly ports?: readonly RulePort[];
  /** As of `RuleElement`. */
  readonly dns?: readonly string[];
  readonly defaultDeny: boolean;
  /** Names this element in drop events; unique in the cluster, 1..0x7fffffff. 0x80000000 and above: rules imported on one node. */
  readonly cookie: number;
  readonly path: string;
  readonly log?: string;
  /** The rule's own, as `Rule` has them. Absent: none. */
  readonly labels?: readonly string[];
}

export interface Resolution {
  readonly rules: readonly ResolvedRule[];
  /** Every selector that `rules` names, canonical, by hash. */
  readonly selectors: ReadonlyMap<SelectorHash, LabelSelector>;
}

/** What the policy engine knows of one identity. */
export interface PeerIdentity {
  readonly id: number;
  /** For a local CIDR identity: its prefix. */
  readonly cidr?: string;
  /**
   * Of an identity of names: patterns of `toFQDNs` that its addresses' names are of. No other rule hits it: it is judged beside the identity that the
   * address has anyway, and the higher of both ranks counts.
   */
  readonly names?: readonly string[];
  /** The one that is asked about. Absent: no peer with `everyone` holds it. */
  readonly address?: string;
  /** Also carries reserved:kube-apiserver (host, or an external API server's address). */
  readonly kubeApiserver?: boolean;
}

/** How the compiler asks about membership of a PeerSet. */
export interface PeerSetView {
  /** Identities of the set, ascending; undefined when the set is not known (compile throws `UnknownPeerSetError`). */
  identities(hash: SelectorHash): Iterable<number> | undefined;
}

/** One port interval's decision. For 1 and 58 the port is the ICMP type. Protocol 0 = any protocol not listed: the port is its number. */
export type CompiledRow = Decision & {
  readonly protocol: 0 | 1 | 6 | 17 | 58 | 132;
  readonly from: number;
  readonly to: number;
  /** Cookie of the deciding rule (the lowest among equals); 0 when none (allowed by absence of default deny, or the localhost rule). */
  readonly cookie: number;
};

/** Rows of one class: disjoint, ascending by (protocol, from), neighbours with equal decisions merged. No row = no match = drop. */
export type ClassRows = readonly CompiledRow[];

/** Rules that come to more rows than a direction may have (row-budget.ts): it is closed to everybody. */
export interface Excess {
  /** How many rows there may be, and how rules come to fewer. */
  readonly message: string;
}

/** Allows alone. */
export interface AddressRows {
  /** Canonical. */
  readonly prefix: string;
  /** Whose the addresses must be. Absent: anybody's. */
  readonly identity?: number;
  /** One object for equal rows. */
  readonly rows: ClassRows;
}

export interface CompiledDirection {
  readonly enforced: boolean;
  /** Rows of the scope classes, always present when enforced. */
  readonly scope: { readonly unknown: ClassRows; readonly pod: ClassRows; readonly world: ClassRows };
  /** Classes made for identities in at least one named peer set, and for reserved identities; members ascending. Identities not
   * listed get their scope's class (spec of scopes: bpf contract). No two classes share a member; order canonical. */
  readonly classes: readonly { readonly members: readonly number[]; readonly rows: ClassRows }[];
  /** What is allowed by address where no row of the identity's class decides: of the longest prefix around it. Ascending; not of unknown identities. */
  readonly addresses: readonly AddressRows[];
  /** Absent: the rules fit. */
  readonly excess?: Excess;
}

/** The compiled policy of one slot. Deterministic: equal inputs give deeply equal outputs. */
export interface CompiledPolicy {
  readonly ingress: CompiledDirection;
  readonly egress: CompiledDirection;
}

export interface CompileInput {
  /** The rules whose subject selects the endpoint, from all policies. */
  readonly rules: readonly ResolvedRule[];
  readonly peerSets: PeerSetView;
  /** Every identity that can appear as a peer and is not a plain pod: reserved ones and local CIDR identities. */
  readonly identities: Iterable<PeerIdentity>;
  /** `default` | `always` | `never` (spec 2.7). */
  readonly mode: 'default' | 'always' | 'never';
  /** The localhost rule (spec 2.7): host may reach pods on ingress unless explicitly denied. Default true. */
  readonly allowLocalhost?: boolean;
  /** Absent: no name stands for any number. */
  readonly portNames?: PortNames;
  /** Absent: there is no proxy. */
  readonly listeners?: Listeners;
  /** Rows that a direction may come to (row-budget.ts), 1 to MOST_ROWS. Default MOST_ROWS. */
  readonly mostRows?: number;
}

/** Work in pieces: it yields where its caller may do something else, if only that does not change what the work reads. */
export type Pieces<T> = Generator<void, T, void>;
