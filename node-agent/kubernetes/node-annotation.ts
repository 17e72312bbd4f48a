import {
  ApiError,
  type KubeClient,
  type KubeNode,
  MOST_NODE_ADDRESSES,
  NODE_ADDRESSES_ANNOTATION,
  resources,
} from '@weir/kube';
import { formatAddress, parseAddress } from '@weir/net';
import { messageOf } from '@weir/process/errors';
import type { Reconciler } from '@weir/reconciler';
import { type Derivation, derive, type StateDB, type Table } from '@weir/statedb';
import type { Logger } from '../core.ts';
import { type LocalAddressRow, reachable } from '../node-addresses/part.ts';
import type { NodeRow } from '../tables.ts';
import { apiReconciler } from './api-reconciler.ts';
import type { Connection } from './connection.ts';

const FIELD_MANAGER = 'weir-agent-addresses';
/** Between two writes, and two attempts at one. */
const INTERVAL_MS = 1_000;
/** How often a refused write is retried: the permission may have come. */
const AGAIN_MS = 60_000;

/** Key: `node`, the only one. */
interface Wanted {
  readonly node: string;
  /** What the annotation is to say, and what it says; empty: there is none. */
  readonly wanted: string;
  readonly published: string;
  /** How many addresses there are. */
  readonly count: number;
}

/**
 * Says in an annotation of this node's Node which addresses it has beside those of its status (node-addresses/types.ts), so that other agents know them:
 * one write when they change, and when somebody else changed the annotation. A node without such addresses has no annotation.
 */
export class NodeAnnotationWriter {
  readonly #client: KubeClient;
  readonly #db: StateDB;
  readonly #log: Logger;
  readonly #table: Table<Wanted>;
  readonly #derivation: Derivation;
  readonly #reconciler: Reconciler<Wanted>;
  readonly #ending = new AbortController();
  readonly #local: Table<LocalAddressRow>;
  #unawait: (() => void) | undefined;
  #refused: string | undefined;

  constructor(options: {
    readonly db: StateDB;
    readonly client: KubeClient;
    readonly nodeName: string;
    readonly nodes: Table<NodeRow>;
    readonly local: Table<LocalAddressRow>;
    readonly connection: Connection;
    readonly log: Logger;
    /** Least time between two writes, in milliseconds. Default 1000. */
    readonly intervalMs?: number;
    /** Time after which a refused write is tried again, in milliseconds. Default 60,000. */
    readonly againMs?: number;
  }) {
    const { db, client, nodeName, nodes, local, connection, log, intervalMs = INTERVAL_MS } = options;
    this.#client = client;
    this.#db = db;
    this.#log = log;
    this.#local = local;
    this.#table = db.table<Wanted>({ name: 'nodeAnnotation', key: ({ node }) => node });
    this.#derivation = derive(db, {
      name: 'node-annotation',
      into: this.#table,
      inputs: [nodes, local],
      fn: (node, read): Wanted[] => {
        if (node.name !== nodeName) return [];
        const reported = new Set(node.addresses.map(canonical));
        const further = reachable(read.all(local), reported).filter((address) => !reported.has(address));
        const { furtherAddresses: published = [] } = node;
        return [{ node: nodeName, wanted: textOf(further), published: published.join(), count: further.length }];
      },
      equals: (a, b) => a.wanted === b.wanted && a.published === b.published && a.count === b.count,
    });
    this.#derivation.stop();
    this.#reconciler = apiReconciler<Wanted>({
      name: 'node-annotation',
      what: 'node annotation',
      connection,
      ending: this.#ending.signal,
      db,
      table: this.#table,
      operations: { update: (row) => this.#update(row), delete: () => undefined },
      roundsPerSecond: 1000 / intervalMs,
      refreshIntervalMs: options.againMs ?? AGAIN_MS,
    });
  }

  start(): void {
    // Until the kernel has been asked, what was published stands.
    const known = this.#db.initialisedWatch(this.#local);
    if (known.fired) this.#derivation.start();
    else this.#unawait = known.onFire(() => this.#derivation.start());
    this.#reconciler.start();
  }

  /** Resolves when the request under way has ended. */
  async stop(): Promise<void> {
    this.#unawait?.();
    this.#ending.abort(new Error('stopped'));
    await this.#reconciler.stop();
    this.#derivation[Symbol.dispose]();
  }

  /** Stops, and takes the annotation off the Node. Tried once. */
  async remove(): Promise<void> {
    using snapshot = this.#db.read();
    const [row] = snapshot.all(this.#table);
    await this.stop();
    if (row === undefined || row.published === '') return;
    try {
      await this.#apply({ ...row, wanted: '' });
    } catch (error) {
      this.#log.info(
        { error: messageOf(error) },
        `cannot remove annotation ${NODE_ADDRESSES_ANNOTATION} from the node`,
      );
    }
  }

  /** Why other nodes do not know all addresses; undefined: they do. */
  problem(): string | undefined {
    using snapshot = this.#db.read();
    const [row] = snapshot.all(this.#table);
    if (row === undefined || row.count === 0) return undefined;
    const unknown = `${row.count} addresses beside those of the Node`;
    if (this.#refused !== undefined && row.wanted !== row.published)
      return `other nodes take ${unknown} for world: ${this.#refused}`;
    if (row.count > MOST_NODE_ADDRESSES)
      return `other nodes know ${MOST_NODE_ADDRESSES} of ${unknown}, and take the others for world`;
    return undefined;
  }

  async #update(row: Wanted): Promise<void> {
    if (row.wanted === row.published) {
      this.#refused = undefined;
      return;
    }
    try {
      await this.#apply(row);
      this.#refused = undefined;
    } catch (error) {
      // A Node that is not there has no annotations.
      if (error instanceof ApiError && error.notFound) return;
      if (!(error instanceof ApiError && error.forbidden)) throw error;
      const why = 'the agent may not annotate the Node (helm value agent.boundToNode, Kubernetes 1.30 or newer)';
      if (this.#refused === undefined) this.#log.info({ error: messageOf(error) }, why);
      this.#refused = why;
    }
  }

  async #apply({ node, wanted }: Wanted): Promise<void> {
    const object: KubeNode = {
      apiVersion: 'v1',
      kind: 'Node',
      metadata: { name: node, annotations: wanted === '' ? {} : { [NODE_ADDRESSES_ANNOTATION]: wanted } },
    };
    await this.#client.apply(resources.KubeNode, object, {
      fieldManager: FIELD_MANAGER,
      force: true,
      subresource: 'status',
    });
  }
}

function canonical(address: string): string {
  try {
    return formatAddress(parseAddress(address).bytes);
  } catch {
    return address; // a host name
  }
}

function textOf(addresses: readonly string[]): string {
  return addresses.toSorted().slice(0, MOST_NODE_ADDRESSES).join();
}
