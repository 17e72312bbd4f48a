/**
 * The operator's heartbeat: a Lease that the leading replica renews, and that every agent watches. It is another object than the Lease of the
 * election, which is renewed too often to be watched from every node.
 */

/** Where the heartbeat of the operators that elect their leader by the Lease `lease` is. */
export function heartbeatName(lease: string): string {
  return `${lease}-heartbeat`;
}
