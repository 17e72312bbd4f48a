/** `GET /v1/service`: Cilium's names (`Service` of its API), as far as Weir fills them, and Weir's own, marked so. */
export interface ServiceAddressModel {
  readonly ip: string;
  readonly port: number;
  readonly protocol: 'tcp' | 'udp' | 'sctp';
  /** `external`: for who is outside of the cluster, where those get backends of this node alone. */
  readonly scope?: 'internal' | 'external';
}

export interface ServiceBackendModel {
  readonly ip: string;
  readonly port: number;
  readonly protocol: ServiceAddressModel['protocol'];
  readonly nodeName?: string;
  /** Absent where it is not known: of what the kernel has. */
  readonly state?: 'active' | 'terminating';
}

export interface ServiceSpecModel {
  /** Number in the kernel's maps; 0: it has none yet. */
  readonly id: number;
  readonly 'frontend-address': ServiceAddressModel;
  /** Weir: all of them; they share their backends. A NodePort has the unspecified address, for every address of a node. */
  readonly 'frontend-addresses': readonly ServiceAddressModel[];
  readonly 'backend-addresses': readonly ServiceBackendModel[];
  readonly flags: {
    readonly type: 'ClusterIP' | 'NodePort' | 'ExternalIP' | 'LoadBalancer';
    readonly namespace: string;
    readonly name: string;
    /** Weir: of the Service; empty where it has no name. */
    readonly 'port-name': string;
    readonly intTrafficPolicy: 'Cluster' | 'Local';
    readonly extTrafficPolicy: 'Cluster' | 'Local';
    /** Weir: seconds for which a client stays with a backend; 0: each connection by itself. */
    readonly 'affinity-seconds': number;
    /** Weir: who may use it; absent: everybody. */
    readonly 'source-ranges'?: readonly string[];
  };
}

/** One port of a Service, of one kind and family. */
export interface ServiceModel {
  /** What is wanted. */
  readonly spec: ServiceSpecModel;
  readonly status: {
    /** What the kernel has taken; absent: nothing yet. */
    readonly realized?: Pick<ServiceSpecModel, 'id' | 'frontend-addresses' | 'backend-addresses'>;
    /** Weir: why the kernel lacks what is wanted; it is tried again. */
    readonly error?: string;
  };
}
