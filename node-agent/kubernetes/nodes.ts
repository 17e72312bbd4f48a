import { isDeepStrictEqual } from 'node:util';
import type { EndpointSlice, KubeNode, KubeObject, ReflectorSink } from '@weir/kube';
import type { InitDone, StateDB, Table } from '@weir/statedb';
import type { ApiserverAddressRow, NodeRow } from '../tables.ts';
import { objectKey } from './table-sink.ts';

/** What is read of a node. */
type NodeFacts = Omit<NodeRow, 'kubeApiserver'>;

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
  readonly #nodes = new Map<string, NodeFacts>();
  /** Addresses of API servers. */
  readonly #slices = new Map<string, readonly string[]>();
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
    this.nodeSink = this.#sink(this.#nodes, 'nodes', nodeFacts);
    this.sliceSink = this.#sink(this.#slices, 'slices', apiserversOf);
  }

  /** Keeps what is read of each object, and no more: nodes report their images and conditions again and again. */
  #sink<T extends KubeObject, F>(
    facts: Map<string, F>,
    what: 'nodes' | 'slices',
    read: (object: T) => F,
  ): ReflectorSink<T> {
    return {
      replace: (items) => {
        facts.clear();
        for (const item of items) facts.set(objectKey(item), read(item));
        this.#listed[what] = true;
        this.#write();
      },
      upsert: (item) => {
        const key = objectKey(item);
        const next = read(item);
        if (isDeepStrictEqual(facts.get(key), next)) return;
        facts.set(key, next);
        this.#write();
      },
      delete: (item) => {
        facts.delete(objectKey(item));
        this.#write();
      },
    };
  }

  #write(): void {
    const apiservers = new Set([...this.#slices.values()].flat());
    const nodes = new Map([...this.#nodes.values()].map((facts) => [facts.name, nodeRow(facts, apiservers)]));
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

/** Of a slice that is not the API server's: none. */
function apiserversOf({ metadata, endpoints }: EndpointSlice): readonly string[] {
  const is =
    metadata.namespace === 'default' &&
    (metadata.labels?.['kubernetes.io/service-name'] === 'kubernetes' || metadata.name === 'kubernetes');
  return is ? (endpoints?.flatMap(({ addresses }) => addresses) ?? []) : [];
}

function nodeFacts({ metadata, spec, status }: KubeNode): NodeFacts {
  const all = status?.addresses ?? [];
  const addresses = ['InternalIP', 'ExternalIP'].flatMap((type) =>
    all.filter((entry) => entry.type === type).map((entry) => entry.address),
  );
  const podCidrs = spec?.podCIDRs ?? (spec?.podCIDR === undefined || spec.podCIDR === '' ? [] : [spec.podCIDR]);
  return { name: metadata.name, addresses: [...new Set(addresses)], podCidrs };
}

function nodeRow(facts: NodeFacts, apiservers: ReadonlySet<string>): NodeRow {
  return { ...facts, kubeApiserver: facts.addresses.some((address) => apiservers.has(address)) };
}
