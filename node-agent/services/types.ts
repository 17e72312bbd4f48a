/**
 * Services, as nodes translate them.
 *
 *   Service, EndpointSlice (API) -> serviceObjects, serviceEndpoints -> frontends -> maps of bpf/services.h
 *
 * Guarantees: whoever finds a frontend in the kernel finds one of its backends; the numbers of services and backends outlive the agent (they are
 * read back from the maps); a change costs what it changes.
 */

export type Protocol = 'TCP' | 'UDP' | 'SCTP';

/** One port of a Service, as its specification has it. */
export interface ServicePort {
  /** Empty where it has none. */
  readonly name: string;
  readonly protocol: Protocol;
  readonly port: number;
}

/** A Service that has addresses of its own. Key: `namespace/name`. */
export interface ServiceObjectRow {
  readonly namespace: string;
  readonly name: string;
  /** Cluster IPs, of either family. */
  readonly clusterAddresses: readonly string[];
  readonly ports: readonly ServicePort[];
  /** Seconds for which a client stays with a backend; absent: each connection by itself. */
  readonly affinitySeconds?: number;
  /** Backends count before they are ready. */
  readonly publishNotReady: boolean;
}

/** One endpoint of a slice. */
export interface SliceEndpoint {
  readonly addresses: readonly string[];
  readonly ready: boolean;
  /** It serves, though it may be ending. */
  readonly serving: boolean;
  readonly terminating: boolean;
  readonly node?: string;
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
}

/** One port of a Service with all addresses at which it is reached in one family, and who answers there. Key: see `frontendKey`. */
export interface Frontend {
  /** `namespace/name`. */
  readonly service: string;
  readonly portName: string;
  readonly protocol: Protocol;
  readonly family: 4 | 6;
  readonly port: number;
  readonly addresses: readonly string[];
  readonly affinitySeconds?: number;
  /** In the order of addresses and ports. */
  readonly backends: readonly Backend[];
}
