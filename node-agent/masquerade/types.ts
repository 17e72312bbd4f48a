/**
 * What pods send to addresses outside of the cluster leaves with an address of the node (bpf/masquerade.h).
 *
 *   configuration file, nodes (API), the node's interfaces -> masqueradeExcluded, masqueradeCluster, uplinks -> maps of bpf/masquerade.h
 *
 * Guarantees: nothing is translated before it is known which addresses are the cluster's; a configuration that cannot be read changes nothing;
 * flows go on while the agent is away.
 */

/** Addresses that pods reach with their own. Key: `prefix`. */
export interface ExcludedRow {
  /** Canonical. */
  readonly prefix: string;
  /** They are pods': nothing that is sent there is for the node. */
  readonly pods?: true;
}

/** As ip-masq-agent's. */
export interface MasqueradeConfig {
  /** Canonical. */
  readonly nonMasqueradeCidrs: readonly string[];
  /** Of 169.254.0.0/16. */
  readonly linkLocal: boolean;
  /** Of fe80::/10. */
  readonly linkLocalIpv6: boolean;
}
