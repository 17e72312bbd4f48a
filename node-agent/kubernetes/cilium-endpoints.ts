import { isDeepStrictEqual } from 'node:util';
import { ApiError, type CiliumEndpoint, type KubeClient, NODE_ANNOTATION, resources } from '@weir/kube';
import { formatLabels } from '@weir/labels';
import { addressPair } from '@weir/net';
import type { Reconciler } from '@weir/reconciler';
import { type AnyTable, type Derivation, derive, type Key, type StateDB, type Table } from '@weir/statedb';
import { type Acknowledged, type EndpointStatus, endpointStatus, STATUS_TABLES } from '../core/endpoint-status.ts';
import type { Core, Tables } from '../core.ts';
import { tableKey } from '../create-tables.ts';
import type { ContainerPort, EndpointRow } from '../tables.ts';
import { apiReconciler } from './api-reconciler.ts';
import type { Connection } from './connection.ts';
import { FIELD_MANAGER } from './node-policy-status.ts';

/** An object that this agent has written. */
interface Written {
  readonly key: Key;
  /** Of the object on the server: what a delete must hit, should a pod of the same name be on another node by then. */
  readonly uid: string | undefined;
}

/**
 * One CiliumEndpoint for each local pod endpoint (`kubectl get cep`), owned by its pod, so that it goes with it. Deleted with the endpoint.
 * Written only when something of it changed. Table `ciliumEndpoints` is derived from the agent's tables; a reconciler drives it into the
 * API, and table `writtenCiliumEndpoints` has what it has written there.
 */
export class CiliumEndpointWriter {
  readonly #db: StateDB;
  readonly #client: KubeClient;
  readonly #written: Table<Written>;
  readonly #derivation: Derivation;
  readonly #reconciler: Reconciler<CiliumEndpoint>;
  readonly #ending = new AbortController();

  constructor(options: {
    readonly core: Core;
    readonly client: KubeClient;
    readonly nodeName: string;
    readonly connection: Connection;
  }) {
    const { core, client, nodeName, connection } = options;
    const { db } = core;
    this.#db = db;
    this.#client = client;
    this.#written = db.table<Written>({ name: 'writtenCiliumEndpoints', key: (row) => row.key });
    const table = db.table<CiliumEndpoint>({ name: 'ciliumEndpoints', key: keyOf });
    this.#derivation = deriveCiliumEndpoints(db, { ...core.tables, written: this.#written }, table, nodeName);
    this.#derivation.stop();
    this.#reconciler = apiReconciler({
      name: 'cilium-endpoints',
      what: 'ciliumendpoints',
      connection,
      ending: this.#ending.signal,
      db,
      table,
      operations: { update: (object) => this.#update(object), delete: (object) => this.#delete(object) },
    });
  }

  start(): void {
    this.#derivation.start();
    this.#reconciler.start();
  }

  /** What the API server has not taken is tried now. */
  retry(): void {
    this.#reconciler.retry();
  }

  /** Resolves when the request under way has ended. */
  async stop(): Promise<void> {
    this.#ending.abort();
    this.#derivation[Symbol.dispose]();
    await this.#reconciler.stop();
  }

  async #update(object: CiliumEndpoint): Promise<void> {
    let answer: CiliumEndpoint;
    try {
      answer = await this.#client.apply(resources.CiliumEndpoint, object, {
        fieldManager: FIELD_MANAGER,
        force: true,
      });
    } catch (error) {
      // Its pod is on its way out, too.
      if (error instanceof ApiError && error.namespaceGone) return;
      throw error;
    }
    const written = { key: keyOf(object), uid: answer.metadata.uid };
    this.#db.write([this.#written], (txn) => txn.upsert(this.#written, written));
  }

  async #delete(object: CiliumEndpoint): Promise<void> {
    const { name, namespace } = object.metadata;
    const written = this.#writtenAs(keyOf(object));
    if (written === undefined) return;
    const { key, uid } = written;
    try {
      await this.#client.delete(resources.CiliumEndpoint, name, namespace, uid === undefined ? {} : { uid });
    } catch (error) {
      // Gone with its pod, or another node's by now.
      if (!(error instanceof ApiError && (error.notFound || error.conflict))) throw error;
    }
    this.#db.write([this.#written], (txn) => txn.delete(this.#written, key));
  }

  #writtenAs(key: Key): Written | undefined {
    using snapshot = this.#db.read();
    return snapshot.get(this.#written, key);
  }
}

function keyOf({ metadata }: CiliumEndpoint): Key {
  return tableKey.pod(metadata.namespace ?? '', metadata.name);
}

/** Where two endpoints are of one pod, the one of the greater id has the object: it is the newer one. */
function deriveCiliumEndpoints(
  db: StateDB,
  tables: Tables & { readonly written: Table<Written> },
  into: Table<CiliumEndpoint>,
  nodeName: string,
): Derivation {
  const { endpoints, localPods, nodes, written } = tables;
  return derive(db, {
    name: into.name,
    into,
    inputs: [endpoints, ...STATUS_TABLES.map((name): AnyTable => tables[name]), localPods, nodes, written],
    fn: ({ id, pod }, read) => {
      if (pod === undefined) return [];
      const key = tableKey.pod(pod.namespace, pod.name);
      const local = read.get(localPods, key);
      // Without its pod's uid the object would have no owner, and would outlive it.
      const uidOf = (row: EndpointRow): string => local?.mirrorUid ?? row.pod?.uid ?? local?.uid ?? '';
      const rows = [...read.list(endpoints, 'pod', key)].flatMap((row) =>
        uidOf(row) === '' ? [] : (enforcementOf(endpointStatus(read, tables, row), read.has(written, key)) ?? []),
      );
      const newest = rows.at(-1);
      if (newest?.row.id !== id) return [];
      const node = { name: nodeName, address: read.get(nodes, nodeName)?.addresses[0] ?? '' };
      return [ciliumEndpoint(pod, uidOf(newest.row), newest, node, local?.namedPorts ?? [])];
    },
    equals: isDeepStrictEqual,
  });
}

/** An endpoint as its object shows it. */
interface Enforcement {
  readonly row: EndpointRow;
  readonly acknowledged: Acknowledged | undefined;
  readonly state: string;
}

/**
 * What the kernel acknowledged, and whether it refuses what follows. What is on its way changes nothing, so that a change is one write. What was
 * found at start and stands is not written: the agent before this one has done that.
 * @param written this agent has written the object
 */
function enforcementOf(
  { row, acknowledged, problem, state }: EndpointStatus,
  written: boolean,
): Enforcement | undefined {
  if (row.gone !== undefined) return undefined;
  if (problem === undefined && acknowledged?.found === false) return { row, acknowledged, state: acknowledged.state };
  return problem !== undefined || written ? { row, acknowledged, state } : undefined;
}

function ciliumEndpoint(
  pod: { readonly namespace: string; readonly name: string },
  uid: string,
  { row, acknowledged, state }: Enforcement,
  node: { readonly name: string; readonly address: string },
  namedPorts: readonly ContainerPort[],
): CiliumEndpoint {
  return {
    apiVersion: 'cilium.io/v2',
    kind: 'CiliumEndpoint',
    metadata: {
      name: pod.name,
      namespace: pod.namespace,
      annotations: { [NODE_ANNOTATION]: node.name },
      ownerReferences: [{ apiVersion: 'v1', kind: 'Pod', name: pod.name, uid }],
    },
    status: {
      id: row.id,
      ...(acknowledged === undefined
        ? {}
        : { identity: { id: acknowledged.identity, labels: formatLabels(acknowledged.labels) } }),
      networking: { addressing: [addressPair(row.addresses)], node: node.address },
      policy: {
        ingress: { enforcing: acknowledged?.enforced.ingress ?? false, state: state === 'ready' ? 'ok' : state },
        egress: { enforcing: acknowledged?.enforced.egress ?? false, state: state === 'ready' ? 'ok' : state },
      },
      state,
      ...(namedPorts.length === 0 ? {} : { 'named-ports': namedPorts }),
    },
  };
}
