import { isDeepStrictEqual } from 'node:util';
import type { EndpointSlice, KubeNode, KubeObject, ReflectorSink } from '@weir/kube';
import type { InitDone, StateDB, Table } from '@weir/statedb';
import type { ApiserverAddressRow, NodeRow } from '../tables.ts';
import { objectKey } from './table-sink.ts';

/**
 * Nodes, and where the API servers are: an address of the service default/kubernetes is a node's (the node then is `kubeApiserver`) or
 * outside the cluster's nodes. Both tables are complete once both kinds have been listed.
 */
export class NodeTables {
  readonly nodeSink: ReflectorSink<KubeNode>;
  readonly sliceSink: ReflectorSink<EndpointSlice>;
  readonly #db: StateDB;
  readonly #nodesTable: Table<NodeRow>;
  readonly #apiserverTable: Table<ApiserverAddressRow>;
  readonly #nodes = new Map<string, KubeNode>();
  readonly #slices = new Map<string, EndpointSlice>();
  readonly #listed = { nodes: false, slices: false };
  #initDone: readonly InitDone[];

  constructor(options: {
    readonly db: StateDB;
    readonly nodes: Table<NodeRow>;
    readonly apiserverAddresses: Table<ApiserverAddressRow>;
  }) {
    this.#db = options.db;
    this.#nodesTable = options.nodes;
    this.#apiserverTable = options.apiserverAddresses;
    this.#initDone = [
      options.db.initialiser(options.nodes, 'kubernetes'),
      options.db.initialiser(options.apiserverAddresses, 'kubernetes'),
    ];
    this.nodeSink = this.#sink(this.#nodes, 'nodes');
    this.sliceSink = this.#sink(this.#slices, 'slices');
  }

  #sink<T extends KubeObject>(objects: Map<string, T>, what: 'nodes' | 'slices'): ReflectorSink<T> {
    return {
      replace: (items) => {
        objects.clear();
        for (const item of items) objects.set(objectKey(item), item);
        this.#listed[what] = true;
        this.#write();
      },
      upsert: (item) => {
        objects.set(objectKey(item), item);
        this.#write();
      },
      delete: (item) => {
        objects.delete(objectKey(item));
        this.#write();
      },
    };
  }

  #write(): void {
    const apiservers = new Set(
      [...this.#slices.values()]
        .filter(isApiserverSlice)
        .flatMap((slice) => slice.endpoints?.flatMap((endpoint) => endpoint.addresses) ?? []),
    );
    const nodes = new Map([...this.#nodes.values()].map((node) => [node.metadata.name, nodeRow(node, apiservers)]));
    const ofNodes = new Set([...nodes.values()].flatMap((row) => row.addresses));
    const outside = new Map(
      [...apiservers].filter((address) => !ofNodes.has(address)).map((address) => [address, { address }]),
    );
    this.#db.write([this.#nodesTable, this.#apiserverTable], (txn) => {
      const listed = [...txn.all(this.#nodesTable)];
      for (const row of listed) if (!nodes.has(row.name)) txn.delete(this.#nodesTable, this.#nodesTable.spec.key(row));
      for (const row of nodes.values()) {
        if (!isDeepStrictEqual(txn.get(this.#nodesTable, this.#nodesTable.spec.key(row)), row))
          txn.upsert(this.#nodesTable, row);
      }
      const known = [...txn.all(this.#apiserverTable)];
      for (const row of known) {
        if (!outside.has(row.address)) txn.delete(this.#apiserverTable, this.#apiserverTable.spec.key(row));
      }
      for (const row of outside.values()) {
        if (!txn.has(this.#apiserverTable, this.#apiserverTable.spec.key(row))) txn.upsert(this.#apiserverTable, row);
      }
      if (this.#listed.nodes && this.#listed.slices) for (const done of this.#initDone) done(txn);
    });
    if (this.#listed.nodes && this.#listed.slices) this.#initDone = [];
  }
}

function isApiserverSlice({ metadata }: EndpointSlice): boolean {
  return (
    metadata.namespace === 'default' &&
    (metadata.labels?.['kubernetes.io/service-name'] === 'kubernetes' || metadata.name === 'kubernetes')
  );
}

function nodeRow(node: KubeNode, apiservers: ReadonlySet<string>): NodeRow {
  const all = node.status?.addresses ?? [];
  const addresses = ['InternalIP', 'ExternalIP'].flatMap((type) =>
    all.filter((entry) => entry.type === type).map((entry) => entry.address),
  );
  const podCidrs =
    node.spec?.podCIDRs ?? (node.spec?.podCIDR === undefined || node.spec.podCIDR === '' ? [] : [node.spec.podCIDR]);
  return {
    name: node.metadata.name,
    addresses: [...new Set(addresses)],
    podCidrs,
    kubeApiserver: addresses.some((address) => apiservers.has(address)),
  };
}
