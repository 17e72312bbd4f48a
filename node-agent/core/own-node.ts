/** What Kubernetes says of the node that the agent is on. */
import { addressesOf, addressPair } from '@weir/net';
import type { Core } from '../core.ts';
import type { NodeRow } from '../tables.ts';

/** The flag, or what Kubernetes gave this node. */
export function podCidrsOf(
  core: Core,
  config: { readonly podCidr?: readonly string[] | undefined; readonly nodeName: string },
): readonly string[] {
  return config.podCidr ?? ownNode(core, config.nodeName)?.podCidrs ?? [];
}

/** The addresses by which the cluster knows it, its InternalIPs: of each family one at most. */
export function nodeAddresses(core: Core, nodeName: string): readonly string[] {
  return addressesOf(addressPair(ownNode(core, nodeName)?.addresses ?? []));
}

function ownNode({ db, tables }: Core, nodeName: string): NodeRow | undefined {
  using snapshot = db.read();
  return snapshot.get(tables.nodes, nodeName);
}
