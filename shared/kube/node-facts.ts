/** What a node says of addresses. Nothing is read of what has the wrong shape. */
import { itemsOf, textsIn } from './shapes.ts';
import type { KubeNode } from './types.ts';

/** Addresses that the node reports of itself, InternalIP before ExternalIP, each once. Its kubelet writes them. */
export function nodeAddresses({ status }: KubeNode): string[] {
  const all = itemsOf(status?.addresses);
  const addresses = ['InternalIP', 'ExternalIP'].flatMap((type) =>
    textsIn(all.filter((entry) => entry?.type === type).map((entry) => entry?.address)),
  );
  return [...new Set(addresses)];
}

/** Where the node's pods get their addresses. The API server lets nobody change them once they are set. */
export function nodePodCidrs({ spec }: KubeNode): readonly string[] {
  return textsIn(spec?.podCIDRs === undefined ? [spec?.podCIDR] : itemsOf(spec.podCIDRs));
}
