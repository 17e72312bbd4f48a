/** What a node says of addresses. Nothing is read of what has the wrong shape. */

import type { KubeNode } from './kubernetes-objects.ts';
import { itemsOf, textOf, textsIn } from './shapes.ts';

/** Addresses of one node that count at most. A node has a handful; a kubelet that was taken over reports 20,000, and others each time. */
export const MOST_NODE_ADDRESSES = 64;

export interface NodeAddresses {
  /** InternalIP before ExternalIP, each once: the first MOST_NODE_ADDRESSES. */
  readonly addresses: readonly string[];
  /** How many the node reports. */
  readonly reported: number;
}

/** What the node reports of its own addresses. Its kubelet writes them. */
export function nodeAddresses({ status }: KubeNode): NodeAddresses {
  const all = itemsOf(status?.addresses);
  const listed = ['InternalIP', 'ExternalIP'].flatMap((type) =>
    textsIn(all.filter((entry) => entry?.type === type).map((entry) => entry?.address)),
  );
  const addresses = [...new Set(listed)];
  return { addresses: addresses.slice(0, MOST_NODE_ADDRESSES), reported: addresses.length };
}

/** On a Node: its addresses beside those of its status, as its agent finds them in the kernel, with commas between them. */
export const NODE_ADDRESSES_ANNOTATION = 'weir.dev/addresses';

/** What the node's agent says of further addresses: the first MOST_NODE_ADDRESSES, each once. */
export function furtherAddresses({ metadata }: KubeNode): readonly string[] {
  const text = textOf(metadata.annotations?.[NODE_ADDRESSES_ANNOTATION]) ?? '';
  return text === '' ? [] : [...new Set(text.split(',', MOST_NODE_ADDRESSES))];
}

/** Bits that the pod CIDR of one node has at least: whoever claims more addresses than that claims those of others. */
const LEAST_BITS = { v4: 8, v6: 16 } as const;

/**
 * Where the node's pods get their addresses. The API server lets nobody change them once they are set. A range that no node can have does not
 * count: before Kubernetes 1.30 a kubelet can set the CIDR of a node that has none.
 */
export function nodePodCidrs({ spec }: KubeNode): readonly string[] {
  const cidrs = textsIn(spec?.podCIDRs === undefined ? [spec?.podCIDR] : itemsOf(spec.podCIDRs));
  return cidrs.filter((text) => {
    const bits = Number(text.split('/')[1] ?? '128');
    return !(bits < LEAST_BITS[text.includes(':') ? 'v6' : 'v4']);
  });
}
