/**
 * JSON models of the agent API: Cilium's v1beta1 names (spec section 9), as far as Weir fills them, and Weir's own additions, marked so.
 */
import type { PolicyStatus } from '@weir/kube';
import type { AddressPair } from '@weir/net';
import type { PartRow } from '@weir/process/parts';
import type { StreamInfo, TableInfo } from '@weir/statedb';
import type { HealthCheck, Verification } from '../core.ts';

export type { FlowEvent, FlowPeer } from '../flows/types.ts';
export type { ServiceAddressModel, ServiceBackendModel, ServiceModel, ServiceSpecModel } from './service-models.ts';

export interface EndpointChangeRequest {
  readonly id: number;
  readonly ifindex: number | undefined;
  readonly interfaceName: string;
  readonly addresses: readonly string[];
  readonly labels: Readonly<Record<string, string>> | undefined;
  readonly mac: string | undefined;
  readonly hostMac: string | undefined;
  readonly containerId: string | undefined;
  readonly containerInterface: string | undefined;
  readonly pod: { readonly namespace: string; readonly name: string; readonly uid?: string } | undefined;
}

export type PolicyEnabled = 'none' | 'ingress' | 'egress' | 'both';

export interface EndpointPolicy {
  readonly id: number;
  /** Revision of the endpoint in the datapath, as drop events have it; 0: the kernel has nothing of it. */
  readonly build: number;
  readonly 'policy-revision': number;
  readonly 'policy-enabled': PolicyEnabled;
  readonly 'allowed-ingress-identities': readonly number[];
  readonly 'allowed-egress-identities': readonly number[];
  readonly 'denied-ingress-identities': readonly number[];
  readonly 'denied-egress-identities': readonly number[];
  readonly l4: { readonly ingress: readonly L4Rule[]; readonly egress: readonly L4Rule[] };
  /** Weir: policies that select the endpoint: uid -> generation. */
  readonly policies: Readonly<Record<string, number>>;
}
export interface L4Rule {
  readonly rule: string;
  readonly 'derived-from-rules': readonly (readonly string[])[];
}

export interface EndpointModel {
  readonly id: number;
  readonly spec: { readonly options: object; readonly 'label-configuration': { readonly user: readonly string[] } };
  readonly status: {
    readonly 'external-identifiers': Readonly<Record<string, string>>;
    readonly identity: IdentityModel;
    readonly labels: {
      readonly realized: { readonly user: readonly string[] };
      readonly 'security-relevant': readonly string[];
      readonly derived: readonly string[];
      readonly disabled: readonly string[];
    };
    readonly realized: object;
    readonly networking: {
      readonly addressing: readonly AddressPair[];
      readonly 'host-mac'?: string;
      readonly mac?: string;
      readonly 'interface-name': string;
      readonly 'interface-index': number;
      readonly 'container-interface-name'?: string;
    };
    readonly policy: {
      readonly spec: EndpointPolicy;
      readonly realized: EndpointPolicy;
      readonly 'proxy-policy-revision': number;
    };
    readonly log: readonly {
      readonly code: string;
      readonly message: string;
      readonly state: string;
      readonly timestamp: string;
    }[];
    readonly controllers: readonly object[];
    readonly state: string;
    readonly health: EndpointHealth;
    readonly namedPorts: readonly { readonly name: string; readonly port: number; readonly protocol: string }[];
  };
}

export type HealthWord = 'OK' | 'Bootstrap' | 'Pending' | 'Warning' | 'Failure' | 'Disabled';
export interface EndpointHealth {
  readonly overallHealth: HealthWord;
  readonly bpf: HealthWord;
  readonly policy: HealthWord;
  readonly connected: boolean;
}

export interface IdentityModel {
  readonly id: number;
  readonly labels: readonly string[];
  readonly labelsSHA256: string;
}

export interface PolicyModel {
  readonly revision: number;
  /** JSON text of the rules. */
  readonly policy: string;
  /** What was done all the same, and may surprise. */
  readonly warnings?: readonly string[];
}

/** Weir: a policy on this node. */
export interface PolicyStatusModel {
  readonly kind: string;
  readonly namespace?: string;
  readonly name: string;
  readonly uid: string;
  /** Generation that the cluster asks for. */
  readonly wanted: number;
  /** Generation that every selected endpoint has in this kernel; 0 when none. */
  readonly kernel: number;
  /** Endpoints of this node that it selects. */
  readonly endpoints: number;
  readonly state: 'Programmed' | 'NoEndpoints' | 'Pending' | 'Failing';
  readonly failures: readonly { readonly generation: number; readonly reason: string; readonly message: string }[];
  /** What the operator says for the whole cluster, of kinds whose objects have no status. */
  readonly cluster?: PolicyStatus;
}

export interface Status {
  readonly state: 'Ok' | 'Warning' | 'Failure' | 'Disabled';
  readonly msg: string;
}

export interface StatusResponse {
  readonly cilium: Status;
  readonly kubernetes: Status & { readonly 'k8s-api-versions'?: readonly string[] };
  readonly nodeMonitor: Status;
  readonly ipam: {
    readonly status: string;
    readonly ipv4: readonly string[];
    readonly ipv6: readonly string[];
    readonly allocations: Readonly<Record<string, string>>;
  };
  readonly cluster: { readonly self: string; readonly nodes: readonly { readonly name: string }[] };
  readonly 'bpf-maps': {
    readonly 'dynamic-size-ratio': 0;
    readonly maps: readonly { readonly name: string; readonly size: number }[];
  };
  readonly 'identity-range': { readonly 'min-identity': number; readonly 'max-identity': number };
  /** Weir. */
  readonly weir: {
    readonly version: string;
    readonly node: string;
    readonly clusterName: string;
    readonly policyRevision: number;
    /** Up to which the kernel has the policies, at every endpoint. */
    readonly realisedRevision: number;
    readonly policyEnforcement: string;
    /** `unready`: some of the others, each with its reason. */
    readonly endpoints: { readonly total: number; readonly ready: number; readonly unready?: readonly string[] };
    readonly policies: number;
    /** What parts of the agent say of themselves, beside Kubernetes. */
    readonly conditions: readonly (Status & { readonly name: string; readonly title: string })[];
    /** How far each part has come, in the order of start. */
    readonly parts: readonly PartRow[];
    readonly checks: readonly HealthCheck[];
  };
}

/** One of the agent's tables: what it holds and who follows it. */
export interface TableModel extends Omit<TableInfo, 'table' | 'streams'> {
  readonly streams: readonly Pick<StreamInfo, 'name' | 'lag'>[];
}

/** What a comparison of all that is enforced found. */
export type VerificationModel = Verification;

// ---- weir explain, from files and from an agent ----

/** A rule, or one element of it. Of an agent without a place. */
export interface RuleRef {
  /** `CiliumNetworkPolicy default/web`. */
  readonly policy: string;
  readonly path: string;
  /** What it says, where it is an element. */
  readonly says?: string;
  readonly file?: string;
  readonly line?: number;
  readonly column?: number;
}

/** What the policies of one end make of the flow. */
export interface EndExplanation {
  /** `egress` at the source, `ingress` at the destination. */
  readonly direction: 'ingress' | 'egress';
  /** The pod. */
  readonly at: string;
  readonly verdict: 'allowed' | 'denied';
  readonly reason: string;
  /** Elements that decided. Empty: none did. */
  readonly deciding: readonly RuleRef[];
  /** Elements that match, too, and were outranked. */
  readonly others: readonly RuleRef[];
  /** Rules that select the pod in this direction. */
  readonly selecting: readonly RuleRef[];
  /** What the kernel does with such a packet; absent: nobody asked. Without a verdict it could not be asked. */
  readonly kernel?: { readonly verdict?: 'allowed' | 'denied'; readonly reason: string };
}

export interface FlowExplanation {
  readonly verdict: 'allowed' | 'denied';
  readonly source: string;
  readonly destination: string;
  readonly protocol: string;
  /** Or type. */
  readonly port: number;
  /** Ends that are pods, of an agent those of its node; egress first. */
  readonly ends: readonly EndExplanation[];
}

/** `GET /v1/fqdn/cache`. */
export interface FqdnCacheModel {
  readonly 'endpoint-id': number;
  readonly fqdn: string;
  readonly ips: readonly string[];
  readonly 'lookup-time': string;
  readonly ttl: number;
  readonly 'expiration-time': string;
  readonly source: 'lookup';
}

/** `GET /v1/fqdn/names`. */
export interface FqdnNamesModel {
  readonly FQDNPolicySelectors: readonly {
    readonly selectorString: string;
    readonly regexString: string;
    /** Identities of addresses with a name of it. */
    readonly identities: readonly number[];
  }[];
}
