import { isDeepStrictEqual } from 'node:util';
import {
  type EndpointSlice,
  furtherAddresses,
  itemsOf,
  type KubeNode,
  type KubeObject,
  nodeAddresses,
  nodePodCidrs,
  type ReflectorSink,
  textMapOf,
  textOf,
  textsIn,
} from '@weir/kube';
import { parsePrefix } from '@weir/net';
import {
  type Derivation,
  derive,
  type IndexSpec,
  type InitDone,
  type Key,
  keys,
  type StateDB,
  type Table,
} from '@weir/statedb';
import { objectKey } from '../parts/table-sink.ts';
import type { ApiserverAddressRow, NodeRow } from '../tables.ts';

/** What is read of a node, and no more: nodes report their images and conditions again and again. */
interface NodeFacts extends Omit<NodeRow, 'kubeApiserver'> {
  /** RFC 3339, in seconds, from the API server. */
  readonly created: string;
}

/** Addresses of API servers that a slice names. */
interface ApiserverSlice {
  readonly slice: string;
  readonly addresses: readonly string[];
}

/**
 * Nodes, and where the API servers are by the slice of service default/kubernetes; a node at one of whose addresses one is, is `kubeApiserver`.
 * Where pod CIDRs of nodes overlap, the oldest node has them, and of the others those that overlap do not count: who registers a node takes
 * nobody's pods. This node believes its own in any case. Both tables are derived from what is read of nodes and slices, complete once both
 * kinds have been listed, and up to date whenever a call of a sink has returned.
 */
export class NodeTables {
  readonly nodeSink: ReflectorSink<KubeNode>;
  readonly sliceSink: ReflectorSink<EndpointSlice>;
  readonly #db: StateDB;
  readonly #derived: readonly Derivation[];

  constructor(options: {
    readonly db: StateDB;
    readonly nodeName: string;
    readonly nodes: Table<NodeRow>;
    readonly apiserverAddresses: Table<ApiserverAddressRow>;
  }) {
    const { db, nodeName } = options;
    this.#db = db;
    const facts = factTable<NodeFacts>(db, 'nodeFacts', (row) => row.name, [
      { name: 'podCidr', kind: 'lpm', keys: ({ podCidrs }) => podCidrs.flatMap(cidrKey) },
    ]);
    const slices = factTable<ApiserverSlice>(db, 'apiserverSlices', (row) => row.slice, [
      { name: 'address', keys: ({ addresses }) => addresses },
    ]);
    this.nodeSink = this.#sink(facts, nodeFacts);
    this.sliceSink = this.#sink(slices, apiserversOf);
    this.#derived = [
      derive(db, {
        name: 'kubernetes',
        into: options.nodes,
        inputs: [facts, slices],
        fn: ({ created, ...node }, read) => {
          const serves = (address: string): boolean => !read.list(slices, 'address', address).next().done;
          const overlapping = (key: Key): NodeFacts[] => [
            ...read.covering(facts, 'podCidr', key),
            ...read.covered(facts, 'podCidr', key),
          ];
          const counts = (cidr: string): boolean =>
            node.name === nodeName ||
            !cidrKey(cidr).some((key) => overlapping(key).some((other) => isOlder(other, { ...node, created })));
          const podCidrs = node.podCidrs.filter(counts);
          return [
            { ...node, podCidrs, kubeApiserver: [...node.addresses, ...(node.furtherAddresses ?? [])].some(serves) },
          ];
        },
        equals: isDeepStrictEqual,
      }),
      derive(db, {
        name: 'kubernetes',
        into: options.apiserverAddresses,
        inputs: [slices, facts],
        fn: ({ addresses }) => addresses.map((address) => ({ address })),
        equals: isDeepStrictEqual,
      }),
    ];
  }

  /** Nothing is derived any more. */
  stop(): void {
    for (const derivation of this.#derived) derivation[Symbol.dispose]();
  }

  #sink<T extends KubeObject, F>(table: Table<F>, read: (object: T) => F): ReflectorSink<T> {
    const { key } = table.spec;
    let listed: InitDone | undefined = this.#db.initialiser(table, 'kubernetes');
    return {
      replace: (items) => {
        const facts = new Map(items.map(read).map((row) => [key(row), row]));
        this.#db.write([table], (txn) => {
          for (const row of txn.all(table)) if (!facts.has(key(row))) txn.delete(table, key(row));
          for (const row of facts.values()) txn.upsert(table, row);
          listed?.(txn);
        });
        listed = undefined;
        this.#flush();
      },
      upsert: (item) => {
        this.#db.write([table], (txn) => txn.upsert(table, read(item)));
        this.#flush();
      },
      delete: (item) => {
        this.#db.write([table], (txn) => txn.delete(table, key(read(item))));
        this.#flush();
      },
    };
  }

  #flush(): void {
    for (const derivation of this.#derived) derivation.flush();
  }
}

function factTable<F>(
  db: StateDB,
  name: string,
  key: (facts: F) => string,
  indexes: readonly IndexSpec<F>[],
): Table<F> {
  return db.table<F>({ name, key, indexes, equals: isDeepStrictEqual });
}

/** In an index of kind `lpm`; none for what is no prefix. */
function cidrKey(text: string): Key[] {
  try {
    const { bytes, bits } = parsePrefix(text);
    return [keys.prefix(bytes, bits)];
  } catch {
    return [];
  }
}

function isOlder(a: NodeFacts, b: NodeFacts): boolean {
  return a.created === b.created ? a.name < b.name : a.created < b.created;
}

/**
 * The slice that API servers write themselves: whoever may make slices in namespace `default` can label one for service `kubernetes`, but
 * this name is taken, and what others write into it the API servers overwrite (k8s.io/kubernetes, pkg/controlplane/reconcilers).
 */
export const APISERVER_SLICE = { namespace: 'default', name: 'kubernetes' } as const;

/** Of a slice that is not the API servers': none. */
function apiserversOf(slice: EndpointSlice): ApiserverSlice {
  const { metadata, endpoints } = slice;
  const is = metadata.namespace === APISERVER_SLICE.namespace && metadata.name === APISERVER_SLICE.name;
  return {
    slice: objectKey(slice),
    addresses: is ? textsIn(itemsOf(endpoints).flatMap((each) => itemsOf(each?.addresses))) : [],
  };
}

function nodeFacts(node: KubeNode): NodeFacts {
  const { name, creationTimestamp: created = '', labels } = node.metadata;
  const zone = textOf(labels?.['topology.kubernetes.io/zone']);
  const further = furtherAddresses(node);
  return {
    ...{ name, created, addresses: nodeAddresses(node).addresses, podCidrs: nodePodCidrs(node) },
    ...(further.length === 0 ? {} : { furtherAddresses: further }),
    ...(zone === undefined ? {} : { zone }),
    ...(labels === undefined ? {} : { labels: textMapOf(labels) }),
  };
}
