/** Addresses at which NodePorts answer, into map `svc_nodes`. */
import { networkInterfaces } from 'node:os';
import type { Operations } from '@weir/reconciler';
import { type Derivation, derive, type StateDB, type Table } from '@weir/statedb';
import { type BpfMap, inNetns } from 'libbpf-ts';
import type { NodeRow } from '../tables.ts';
import { ordinary } from './addresses.ts';
import { letThrough } from './filter.ts';
import { addressKey, nodeFlags } from './layout.ts';
import type { NodeAddressRow, OwnAddressRow } from './types.ts';

/** In the node's own network namespace NodePorts answer here, too; not at ::1, as with kube-proxy. */
const LOOPBACK = '127.0.0.1';

/** Of the node's interfaces that are up; default: of the process's own network namespace. */
export function interfaceAddresses(netns?: string): string[] {
  const interfaces = netns === undefined ? networkInterfaces() : inNetns(netns, networkInterfaces);
  return ordinary(Object.values(interfaces).flatMap((each) => (each ?? []).map(({ address }) => address)));
}

/** What nodes report, and what this node has beside that. An address of two nodes is the first's by name. */
export function deriveNodeAddresses(
  db: StateDB,
  nodes: Table<NodeRow>,
  own: Table<OwnAddressRow>,
  into: Table<NodeAddressRow>,
  nodeName: string,
): Derivation {
  return derive(db, {
    name: into.name,
    into,
    inputs: [nodes, own],
    fn: (node, read): NodeAddressRow[] => {
      if (node.name !== nodeName) return ordinary(node.addresses).map((address) => ({ address }));
      const addresses = new Set([...ordinary(node.addresses), ...Array.from(read.all(own), ({ address }) => address)]);
      return [
        ...Array.from(addresses, (address): NodeAddressRow => ({ address, self: true })),
        { address: LOOPBACK, self: true, loopback: true },
      ];
    },
  });
}

export class NodeAddressOperations implements Operations<NodeAddressRow> {
  readonly #map: BpfMap;
  readonly #filter: BpfMap;

  constructor(map: BpfMap, filter: BpfMap) {
    this.#map = map;
    this.#filter = filter;
  }

  update({ address, self, loopback }: NodeAddressRow): void {
    const flags = nodeFlags.encode({ self: self === true, loopback: loopback === true });
    letThrough(this.#filter, address);
    this.#map.update(addressKey.encode(address), flags);
  }

  delete({ address }: NodeAddressRow): void {
    this.#map.delete(addressKey.encode(address));
  }

  prune(rows: Iterable<NodeAddressRow>): void {
    const wanted = new Set(Array.from(rows, ({ address }) => address));
    for (const key of [...this.#map.keys()]) if (!wanted.has(addressKey.decode(key))) this.#map.delete(key);
  }
}
