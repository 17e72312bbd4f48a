/**
 * Routes to the pods of other nodes (`--routing direct`): one for each pod CIDR of each other node, by that node's InternalIP of the
 * same family.
 *
 * Guarantees: only routes that carry our protocol number are ever changed or removed, and none before the nodes have been listed
 * completely; our metric keeps a route from replacing somebody else's to the same prefix. What others take away comes back at the
 * next refresh. Stopping leaves the routes: pods go on talking while the agent is away.
 */

/** Route protocol number of Weir's routes in the main table (`ip route show proto 87`; 87 is the letter W). */
export const ROUTE_PROTOCOL = 87;

/** Metric of Weir's routes: a route of the administrator (metric 0) to the same prefix wins, and is not touched. */
export const ROUTE_METRIC = 87;

/** A pod CIDR of another node. Key: `prefix`. */
export interface RouteRow {
  /** Canonical. */
  readonly prefix: string;
  readonly node: string;
  /** The node's address of the prefix's family; absent when it has none. */
  readonly gateway?: string;
}

/** A route as the kernel has it. */
export interface KernelRoute {
  readonly prefix: string;
  readonly gateway?: string;
}

/**
 * A route to the pods of another node could not be made.
 * @fix Do what the message says: give the node an InternalIP of that family, or a network where nodes reach each other directly.
 */
export class RouteError extends Error {
  readonly code = 'ERR_WEIR_ROUTE';
  constructor(row: RouteRow, why: string, options?: ErrorOptions) {
    super(`no route to the pods of node ${row.node} (${row.prefix}): ${why}`, options);
    this.name = 'RouteError';
  }
}

export interface RoutingStatus {
  readonly ok: boolean;
  readonly message: string;
  /** Routes that should be there. */
  readonly wanted: number;
  readonly failing: readonly { readonly node: string; readonly prefix: string; readonly message: string }[];
}
