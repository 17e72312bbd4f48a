/**
 * Where pods can have addresses. Whoever may write the status of pods in one namespace, or holds a kubelet's credentials, can say any
 * address; nobody can change a node's pod CIDRs once they are set, or move a pod to another node. So an address counts only where its pod is.
 *
 * Guarantee: what a pod or another node says of itself never makes an address count that lies in the pod CIDRs of a node that has some, other
 * than the pod's own. Where pod CIDRs overlap, the oldest node has the addresses that they share.
 */
import { parseAddress, parsePrefix } from '@weir/net';
import { type AnyTable, type Key, keys, type Reader, type StateDB, type Table, type WriteTxn } from '@weir/statedb';
import type { NodeRow, PodRow } from '../types.ts';

/** A node whose pod CIDRs overlap those of others. */
export interface PodCidrOverlap {
  readonly node: string;
  readonly podCidrs: readonly string[];
  /** The oldest of them all, which has what they share. */
  readonly oldest: string;
  /** How many others there are. */
  readonly others: number;
}

/** `unknown`: the pod's node has not been seen, so that it is not decided yet. */
export type Place = 'home' | 'elsewhere' | 'unknown';

export class PodNetworks {
  /** Nodes as they were taken in last. */
  readonly #nodes: Table<NodeRow>;

  constructor(db: StateDB) {
    this.#nodes = db.table<NodeRow>({
      name: 'podNetworks',
      key: ({ name }) => name,
      indexes: [
        { name: 'podCidr', kind: 'lpm', keys: ({ podCidrs }) => podCidrs.map(cidrKey) },
        { name: 'address', keys: ({ addresses }) => addresses },
      ],
    });
  }

  get tables(): readonly AnyTable[] {
    return [this.#nodes];
  }

  /** Returns the node as it was. */
  set(txn: WriteTxn, row: NodeRow): NodeRow | undefined {
    return txn.upsert(this.#nodes, row);
  }

  delete(txn: WriteTxn, name: string): NodeRow | undefined {
    return txn.delete(this.#nodes, name);
  }

  /** Nodes whose pod CIDRs overlap those of an older one. */
  overlapping(reader: Reader): PodCidrOverlap[] {
    const all = Array.from(reader.all(this.#nodes), (row) => this.overlap(reader, row) ?? []).flat();
    return all.filter(({ node, oldest }) => node !== oldest);
  }

  /** Undefined: others have no pod CIDR that overlaps one of the node's. */
  overlap(reader: Reader, row: NodeRow): PodCidrOverlap | undefined {
    const { name: node, podCidrs } = row;
    const all = new Set<string>();
    let oldest = row;
    for (const key of podCidrs.map(cidrKey))
      for (const found of [reader.covering(this.#nodes, 'podCidr', key), reader.covered(this.#nodes, 'podCidr', key)])
        for (const other of found) {
          all.add(other.name);
          if (isOlder(other, oldest)) oldest = other;
        }
    all.delete(node);
    return all.size === 0 ? undefined : { node, podCidrs, oldest: oldest.name, others: all.size };
  }

  /** Which pods can have the address. */
  whereIs(reader: Reader, address: string): (pod: PodRow) => Place {
    const home = this.#nodeOf(reader, address);
    return (pod) => {
      const node = pod.node === undefined ? undefined : reader.get(this.#nodes, pod.node);
      if (node === undefined) return 'unknown';
      if (node.podCidrs.length > 0) return home?.name === node.name ? 'home' : 'elsewhere';
      // Nobody says where its pods are: whatever is not said of others.
      return home === undefined && reader.list(this.#nodes, 'address', address).next().done ? 'home' : 'elsewhere';
    };
  }

  /** The node in whose pod CIDRs the address is. */
  #nodeOf(reader: Reader, address: string): NodeRow | undefined {
    let oldest: NodeRow | undefined;
    for (const node of reader.covering(this.#nodes, 'podCidr', addressKey(address)))
      if (oldest === undefined || isOlder(node, oldest)) oldest = node;
    return oldest;
  }
}

function isOlder(a: NodeRow, b: NodeRow): boolean {
  return a.created === b.created ? a.name < b.name : a.created < b.created;
}

/** Key of a canonical address in an index of kind `lpm`. */
export function addressKey(address: string): Key {
  return keys.address(parseAddress(address).bytes);
}

/** The same of a prefix. */
export function cidrKey(cidr: string): Key {
  const { bytes, bits } = parsePrefix(cidr);
  return keys.prefix(bytes, bits);
}
