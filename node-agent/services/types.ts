/**
 * Services, as nodes translate them.
 *
 *   Service, EndpointSlice (API), nodes -> serviceObjects, serviceEndpoints -> frontends -> maps of bpf/services.h
 *
 * Guarantees: whoever finds a frontend in the kernel finds one of its backends; the numbers of services and backends outlive the agent (they are
 * read back from the maps); of several Services that claim one address and port one has it, and the same one on every node; a change costs what it
 * changes.
 */

export type Protocol = 'TCP' | 'UDP' | 'SCTP';
export type TrafficPolicy = 'Cluster' | 'Local';
export type FrontendKind = 'ClusterIP' | 'NodePort' | 'ExternalIP' | 'LoadBalancer';
/** `cluster`: for whoever is in the cluster; and for others where there is no row `local`, which has the backends of this node alone. */
export type Scope = 'cluster' | 'local';

/** One port of a Service, as its specification has it. */
export interface ServicePort {
  /** Empty where it has none. */
  readonly name: string;
  readonly protocol: Protocol;
  readonly port: number;
  readonly nodePort?: number;
}

/** A Service that has addresses of its own. Key: `namespace/name`. */
export interface ServiceObjectRow {
  readonly namespace: string;
  readonly name: string;
  /** RFC 3339. */
  readonly created?: string;
  /** Cluster IPs, of either family. */
  readonly clusterAddresses: readonly string[];
  readonly externalAddresses?: readonly string[];
  /** Addresses of load balancers that hand on what they get as it is (ipMode VIP). */
  readonly balancerAddresses?: readonly string[];
  /** Canonical CIDRs that may use the load balancer's addresses; absent: all. */
  readonly sourceRanges?: readonly string[];
  readonly ports: readonly ServicePort[];
  /** Seconds for which a client stays with a backend; absent: each connection by itself. */
  readonly affinitySeconds?: number;
  /** Backends count before they are ready. */
  readonly publishNotReady: boolean;
  /** Absent: `Cluster`. */
  readonly internalPolicy?: TrafficPolicy;
  /** Absent: `Cluster`. */
  readonly externalPolicy?: TrafficPolicy;
  /** Where load balancers ask whether this node has backends. */
  readonly healthPort?: number;
}

/** One endpoint of a slice. */
export interface SliceEndpoint {
  readonly addresses: readonly string[];
  readonly ready: boolean;
  /** It serves, though it may be ending. */
  readonly serving: boolean;
  readonly terminating: boolean;
  readonly node?: string;
  /** Zones and nodes whose clients it is meant for; absent: no hint. */
  readonly zones?: readonly string[];
  readonly nodes?: readonly string[];
}

/** An EndpointSlice of a Service. Key: `namespace/name`. Index `service`: `namespace/name` of the Service. */
export interface EndpointSliceRow {
  readonly namespace: string;
  readonly name: string;
  readonly service: string;
  readonly endpoints: readonly SliceEndpoint[];
  readonly ports: readonly { readonly name: string; readonly protocol: Protocol; readonly port: number }[];
}

/** An address and port of a pod, or of whoever a slice names. */
export interface Backend {
  readonly address: string;
  readonly port: number;
  /** Where it runs. */
  readonly node?: string;
  /** `terminating`: it serves while it ends, as no other is ready. */
  readonly state: 'active' | 'terminating';
}

/**
 * One port of a Service with all addresses of one kind at which it is reached in one family, and who answers there. Key: see `frontendRowKey`.
 * A NodePort has the unspecified address: it stands for every address of a node.
 */
export interface Frontend {
  /** `namespace/name`. */
  readonly service: string;
  readonly portName: string;
  readonly protocol: Protocol;
  readonly family: 4 | 6;
  readonly kind: FrontendKind;
  readonly scope: Scope;
  readonly port: number;
  readonly addresses: readonly string[];
  readonly affinitySeconds?: number;
  readonly internalPolicy: TrafficPolicy;
  readonly externalPolicy: TrafficPolicy;
  /** Canonical CIDRs of the family; absent: whoever asks. */
  readonly sourceRanges?: readonly string[];
  /** It has no backend because of a traffic policy: other nodes have some. */
  readonly elsewhere?: true;
  /** In the order of addresses and ports. */
  readonly backends: readonly Backend[];
}

/** An address at which NodePorts answer. Key: `address`. */
export interface NodeAddressRow {
  readonly address: string;
  /** Absent: another node's. */
  readonly self?: true;
  /** Only in the network namespace of the node. */
  readonly loopback?: true;
}

/** An address of Services. Key: address and whether it is a cluster IP: others may claim one as theirs. */
export interface ServiceAddressRow {
  readonly address: string;
  /** Nothing but Services is reached there. */
  readonly cluster?: true;
}

/** An address of an interface of this node. Key: `address`. */
export interface OwnAddressRow {
  readonly address: string;
}
