/** What one tenant may use, so that others have enough. */
import { CLUSTER_FIRST, CLUSTER_LAST } from '@weir/identity';
import { DEFAULT_POLICY_LIMITS, type DemandLimits } from '@weir/policy';

/** Numbers that pods of the cluster can have. */
export const IDENTITIES: number = CLUSTER_LAST - CLUSTER_FIRST + 1;

/** 0: no limit. */
export interface PolicyLimits extends DemandLimits {
  /** Policies of one namespace, refused ones too; one counts once for each 50 CIDRs and each 10 selectors begun. */
  readonly policiesPerNamespace: number;
}

export const NO_LIMITS: PolicyLimits = { rulesPerPolicy: 0, selectorsPerPolicy: 0, policiesPerNamespace: 0 };

/** 0: no limit. */
export interface Limits extends PolicyLimits {
  /** Identities of the pods of one namespace, unused ones included. */
  readonly identitiesPerNamespace: number;
}

/**
 * Measured on two cores: a policy of 1,000 selectors takes 50 ms to read. Sixteen namespaces that use up their identities leave others none.
 * A policy of 5,000 rules that each name a selector takes 1,380,000 bytes; where each names a port too, 4,200 of them fit into one object.
 */
export const DEFAULT_LIMITS: Limits = {
  ...DEFAULT_POLICY_LIMITS,
  policiesPerNamespace: 1_000,
  identitiesPerNamespace: 4_096,
};
