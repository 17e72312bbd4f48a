/** What Kubernetes says of the node that the agent is on. */
import { parseAddress } from '@weir/net';
import type { Core } from '../core.ts';
import type { NodeRow } from '../tables.ts';

/** The flag, or what Kubernetes gave this node. */
export function podCidrsOf(
  core: Core,
  config: { readonly podCidr?: string | undefined; readonly nodeName: string },
): readonly string[] {
  return config.podCidr === undefined ? (ownNode(core, config.nodeName)?.podCidrs ?? []) : [config.podCidr];
}

/** The IPv4 address by which the cluster knows it: its InternalIP. */
export function nodeAddress(core: Core, nodeName: string): string | undefined {
  return ownNode(core, nodeName)?.addresses.find((address) => {
    try {
      return parseAddress(address).family === 4;
    } catch {
      return false; // a host name
    }
  });
}

function ownNode({ db, tables }: Core, nodeName: string): NodeRow | undefined {
  using snapshot = db.read();
  return snapshot.get(tables.nodes, nodeName);
}
