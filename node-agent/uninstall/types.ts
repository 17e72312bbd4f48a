/**
 * Taking Weir off a node, by the mark on the agent's DaemonSet (`helm uninstall`) or by hand (`weir-agent cleanup`).
 *
 * Guarantees: first no new pod can be attached, then the container runtime loses the plugin, and only then enforcement ends, so that no
 * pod is ever made that nobody enforces while others are. What is allowed goes on flowing throughout: interfaces and routes of running
 * pods stay (they go with the pods), and so do the routes to other nodes as long as one such pod is there. Every step is a no-op the
 * second time, and a failed one is tried again from the start. The steps are the parts' own (`parts/contract.ts`, `Removal`).
 */

export interface RemovalReport {
  readonly removed: readonly string[];
  /** Interfaces of running pods, which stay. */
  readonly left: readonly string[];
}
