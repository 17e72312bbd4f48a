/** What one tenant may use, so that others have enough. */
import { DEFAULT_POLICY_LIMITS } from '@weir/policy';
import type { PolicyLimits } from './model/budgets.ts';

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
