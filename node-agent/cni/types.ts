/**
 * The CNI plugin, in two halves: `weir-cni.c`, a static shim that a container runtime executes, and this folder's logic in the agent,
 * which does all the work (POST /v1/cni).
 *
 * Guarantees: ADD answers only when the endpoint is enforced in the kernel, and the pod's interface is down until then: no packet of
 * the pod is ever unjudged. A failed ADD leaves nothing behind. DEL is idempotent and needs neither the netns nor the agent's memory.
 */

import type { Family } from '@weir/net';

/** What the shim sends: the CNI_* environment and the bytes of stdin. */
export interface CniRequest {
  readonly env: Readonly<Record<string, string>>;
  readonly stdin: string;
}

/** What the shim prints; exit code 0 or 1. An absent body prints nothing. */
export type CniAnswer =
  | { readonly ok: true; readonly body?: object }
  | { readonly ok: false; readonly body: CniErrorBody };

export interface CniErrorBody {
  readonly cniVersion: string;
  readonly code: number;
  readonly msg: string;
  readonly details: string;
}

export const SUPPORTED_VERSIONS = ['0.4.0', '1.0.0', '1.1.0'] as const;
export type CniVersion = (typeof SUPPORTED_VERSIONS)[number];

export type CniCommand = 'ADD' | 'DEL' | 'CHECK' | 'GC' | 'STATUS' | 'VERSION';

/** One attachment: a container's interface. */
export interface Attachment {
  readonly containerId: string;
  readonly ifname: string;
}

/** A request after validation. */
export interface CniCall {
  readonly command: CniCommand;
  readonly cniVersion: CniVersion;
  readonly attachment?: Attachment;
  readonly netns?: string;
  readonly pod?: { readonly namespace: string; readonly name: string; readonly uid?: string };
  readonly prevResult?: unknown;
  /** ADD: ports of the node that the pod asks for, as `host port/protocol`; the list maps them when it says so. */
  readonly hostPorts: readonly string[];
  /** Whether the plugin list that the runtime reads has one that maps host ports. */
  readonly mapsHostPorts: boolean;
  /** GC: attachments to keep. */
  readonly valid: readonly Attachment[];
}

/** Addresses of one family that follow one another, both ends included; as numbers. */
export interface AddressRange {
  readonly family: Family;
  readonly first: bigint;
  readonly last: bigint;
}

/** Addresses that the node's kernel has for somebody: an address of an interface, or what a route leads to. */
export interface NodeAddress extends AddressRange {
  /** `route to dev cni0`, for people. */
  readonly what: string;
  /** Absent of routes that lead to no interface. */
  readonly device?: string;
}

/** The pod's two interface ends. */
export interface PairSpec {
  readonly hostName: string;
  readonly hostMac: string;
  readonly podName: string;
  readonly podMac: string;
  readonly netns: string;
  /** At most one of each family, IPv4 first. */
  readonly addresses: readonly string[];
  readonly mtu: number;
  /** Preferred sources of the node's own packets to the pod, of each family one at most. */
  readonly nodeAddresses: readonly string[];
}

/** The node's side of the network, as the CNI logic needs it. Only `PodNetwork` runs commands. */
export interface Network {
  /** Settings of the node (forwarding) and of the pairs that it has. Idempotent. */
  prepareNode(): Promise<void>;
  /** MTU and addresses of the interface that leads out of the node: of each family one at most. */
  uplink(): Promise<{ readonly mtu: number; readonly addresses: readonly string[] }>;
  /**
   * What the kernel has within the prefix, whoever made it. A route to the whole prefix, or to more, is how the node reaches that network,
   * and says of no address that somebody has it.
   */
  addressesWithin(cidr: string): Promise<readonly NodeAddress[]>;
  /**
   * Creates the pair: host side up with a route and a neighbour for each address, pod side in its namespace and DOWN. Returns the host side's ifindex.
   * Throws `AddressConflictError` when the kernel has an address for another interface; that one's route is not touched.
   */
  createPair(spec: PairSpec): Promise<number>;
  /** Gives the pod side addresses, neighbours and routes, and brings it up. */
  configurePod(spec: PairSpec): Promise<void>;
  /** Removes a pair by its host side; true when there was one. */
  removeLink(hostName: string): Promise<boolean>;
  /** What is wrong with a configured pod interface; empty when all is as made. */
  checkPod(spec: {
    readonly netns: string;
    readonly podName: string;
    readonly addresses: readonly string[];
    readonly hostName: string;
  }): Promise<readonly string[]>;
  /** Names of this plugin's host-side interfaces. */
  hostLinks(): Promise<readonly string[]>;
  /** Index of an interface of the node. */
  interfaceIndex(name: string): Promise<number>;
}
