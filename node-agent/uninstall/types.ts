/**
 * Taking Weir off a node, by the mark on the agent's DaemonSet (`helm uninstall`) or by hand (`weir-agent cleanup`).
 *
 * Guarantees: first no new pod can be attached, then the container runtime loses the plugin, and only then enforcement ends, so that no
 * pod is ever made that nobody enforces while others are. What is allowed goes on flowing throughout: interfaces and routes of running
 * pods stay (they go with the pods), and so do the routes to other nodes as long as one such pod is there. Every step is a no-op the
 * second time, and a failed one is tried again from the start.
 */

/** The steps, in the order in which they are taken. Each returns what it took away, in words. */
export interface Removal {
  /** No pod can be attached any more. */
  refuse(): Promise<void>;
  /** CNI configuration, then plugin. */
  cni(): Promise<readonly string[]>;
  /** Programs, maps, pins and state. */
  datapath(): Promise<readonly string[]>;
  /** Interfaces of pods that still run. */
  podLinks(): Promise<readonly string[]>;
  /** Routes to other nodes; only asked for when no pod runs. */
  routes(): Promise<readonly string[]>;
}

export interface RemovalReport {
  readonly removed: readonly string[];
  /** Interfaces of running pods, which stay. */
  readonly left: readonly string[];
}
