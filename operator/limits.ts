/** What one tenant may use, so that others have enough. */
import { CLUSTER_FIRST, CLUSTER_LAST } from '@weir/identity';
import { DEFAULT_POLICY_LIMITS, type DemandLimits, type SizeLimits } from '@weir/policy';

/** Numbers that pods of the cluster can have. */
export const IDENTITIES: number = CLUSTER_LAST - CLUSTER_FIRST + 1;

/** 0: no limit. */
export interface PolicyLimits extends DemandLimits, SizeLimits {
  /**
   * Distinct selectors of one policy. One of more than 10 requirements and values counts as one for each 10 begun; and that once for each
   * namespace that it names, 16 times at most and where it names none, unless it asks for a value of a label other than the service account.
   */
  readonly selectorsPerPolicy: number;
  /** Bytes of the rules of one ResolvedPolicy, and of each selector, which a PeerSet repeats. An object of more than 1,500,000 does not fit into etcd. */
  readonly bytesPerPolicy: number;
  /** Policies of one namespace, refused ones too. Each node reports on each that selects pods there, and its report is one object. */
  readonly policiesPerNamespace: number;
  /** Selectors of the policies of one namespace together, each policy's counted by itself. */
  readonly selectorsPerNamespace: number;
  /** Bytes of the rules of the ResolvedPolicies of one namespace, and of their selectors, each once for each policy that has it. */
  readonly bytesPerNamespace: number;
  /** Identities that the selectors of one policy match, summed over its selectors, when it is read. */
  readonly matchesPerPolicy: number;
  /** The same of the policies of one namespace together. What identities that come later add is counted, and refuses no policy in force. */
  readonly matchesPerNamespace: number;
}

export const NO_LIMITS: PolicyLimits = {
  selectorsPerPolicy: 0,
  rulesPerPolicy: 0,
  entriesPerPolicy: 0,
  bytesPerPolicy: 0,
  policiesPerNamespace: 0,
  selectorsPerNamespace: 0,
  bytesPerNamespace: 0,
  cidrsPerNamespace: 0,
  matchesPerPolicy: 0,
  matchesPerNamespace: 0,
};

/** 0: no limit. */
export interface Limits extends PolicyLimits {
  /** Identities of the pods of one namespace, unused ones included. */
  readonly identitiesPerNamespace: number;
  /** Identities that only mirror pods of one node have in one namespace, and in all; the first of a namespace is not refused for the latter. */
  readonly mirrorIdentitiesPerNodeAndNamespace: number;
  readonly mirrorIdentitiesPerNode: number;
}

/**
 * Measured on two cores: a policy of 2,000 selectors takes a round of 0.1 s, with 2,000 identities in its namespace. Sixteen namespaces that
 * use up their identities leave others none. Of the 512,000 addresses
 * that a node's kernel has room for, ten namespaces that use up their CIDRs leave 62,000 beside 50,000 pods. A policy of 5,000 rules that each name a selector takes 1,380,000 bytes; where each names a port
 * too, there are 4,200 of them in `bytesPerPolicy`. To find 500,000 matches takes 0.1 s, and the eight looks for each that it may
 * take 0.2 s, in rounds of 10 ms. To read 50,000 entries takes 0.05 to 0.17 s, in one piece. A node's report, which etcd takes up to 1.5 MB of, has room for 4,300 policies with names of 250 characters.
 */
export const DEFAULT_LIMITS: Limits = {
  identitiesPerNamespace: 4_096,
  mirrorIdentitiesPerNodeAndNamespace: 64,
  mirrorIdentitiesPerNode: 256,
  ...DEFAULT_POLICY_LIMITS,
  policiesPerNamespace: 1_000,
  selectorsPerNamespace: 10_000,
  bytesPerNamespace: 16_777_216,
  matchesPerPolicy: 500_000,
  matchesPerNamespace: 2_000_000,
};
