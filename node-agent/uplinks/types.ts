/**
 * The node's interfaces that lead out, with their addresses, and the maps of flows that are translated there (bpf/nat.h).
 *
 *   `ip address` -> uplinks -> map node_uplinks; parts run programs at these interfaces
 */

/** Key: `ifindex`. */
export interface UplinkRow {
  readonly ifindex: number;
  readonly name: string;
  /** What is sent there in the node's name leaves with these. */
  readonly ipv4?: string;
  readonly ipv6?: string;
}
