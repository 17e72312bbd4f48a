/** Objects of Kubernetes' own API groups, as far as Weir reads and writes them. */

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

/** networking.k8s.io/v1 NetworkPolicy. It has no status. The spec stays raw JSON here, as of the Cilium policies. */
export interface NetworkPolicyObject extends KubeObject {
  readonly spec?: unknown;
}

/** On the API's mirror of a static pod: the pod's uid, by which kubelet has its sandbox made. Nodes may create no other pods, and nobody may change it. */
export const MIRROR_POD_ANNOTATION = 'kubernetes.io/config.mirror';

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
