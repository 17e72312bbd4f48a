import {
  ApiError,
  createReflector,
  type KubeClient,
  type KubeObject,
  type ListOptions,
  type Reflector,
  type ReflectorSink,
  type Resource,
  resources,
  type Service,
  withoutManagedFields,
} from '@weir/kube';
import { messageOf } from '@weir/process/errors';
import type { Table } from '@weir/statedb';
import type { Subscription } from 'rxjs';
import type { Core, Logger } from '../core.ts';
import type { LocalAddressRow } from '../node-addresses/part.ts';
import type { Source } from '../parts/contract.ts';
import { last, TableSink } from '../parts/table-sink.ts';
import type { PeerSetRow } from '../tables.ts';
import { CiliumEndpointWriter } from './cilium-endpoints.ts';
import { Connection } from './connection.ts';
import { NodeAnnotationWriter } from './node-annotation.ts';
import { NodeConditionWriter, type NodeProblems } from './node-condition.ts';
import { NodePolicyStatusWriter } from './node-policy-status.ts';
import { APISERVER_SLICE, NodeTables } from './nodes.ts';
import { PodEventWriter } from './pod-event-writer.ts';
import { PolicyVersions } from './policy-versions.ts';
import {
  endpointSliceParts,
  identityParts,
  mergeEndpoint,
  mergePeerSet,
  mergePolicy,
  namespaceParts,
  peerSetParts,
  podParts,
  policyParts,
  policyStatusParts,
  serviceParts,
  unreadPolicyParts,
} from './rows.ts';

export interface KubernetesOptions {
  readonly core: Core;
  readonly client: KubeClient;
  readonly nodeName: string;
  /** What other parts list and watch, asked once at `start`. */
  readonly sources?: () => readonly Source[];
  /** What is wrong with the node now; asked every 5 s from `start` on. Absent: the Node gets no condition. */
  readonly problems?: NodeProblems;
  /** The node's addresses by its kernel. Absent: the Node gets no annotation. */
  readonly localAddresses?: Table<LocalAddressRow>;
  readonly log: Logger;
}

/**
 * The agent's connection to Kubernetes: reflectors into the core's input tables, writers of CiliumEndpoints and NodePolicyStatus.
 * Make it before `core.start()`: it registers the initialisers without which the core would take an empty table for a complete one.
 */
export class Kubernetes {
  readonly #client: KubeClient;
  readonly #log: Logger;
  readonly #connection: Connection;
  readonly #nodes: NodeTables;
  /** Handles: what lists and watches each kind, by the kind's name, with a number from the second of a kind on. */
  readonly #reflectors = new Map<string, Reflector>();
  readonly #serviceNames: ReflectorSink<Service>;
  /** Where no part lists Services. */
  #services: Reflector | undefined;
  readonly #endpointWriter: CiliumEndpointWriter;
  readonly #statusWriter: NodePolicyStatusWriter;
  readonly #eventWriter: PodEventWriter;
  readonly #conditionWriter: NodeConditionWriter | undefined;
  readonly #annotationWriter: NodeAnnotationWriter | undefined;
  readonly #sources: () => readonly Source[];
  #recoveries: Subscription | undefined;

  constructor(options: KubernetesOptions) {
    const { core, client, nodeName, sources, problems, localAddresses: local, log } = options;
    const { db, tables } = core;
    this.#client = client;
    this.#log = log;
    this.#connection = new Connection(db, log);
    this.#nodes = new NodeTables({ db, nodeName, nodes: tables.nodes, apiserverAddresses: tables.apiserverAddresses });
    this.#reflect(resources.KubeNode, this.#nodes.nodeSink);
    const { namespace, name } = APISERVER_SLICE;
    this.#reflect(resources.EndpointSlice, this.#nodes.sliceSink, {
      namespace,
      fieldSelector: `metadata.name=${name}`,
    });
    this.#reflect(
      resources.Namespace,
      new TableSink({ db, log, table: tables.namespaces, parts: namespaceParts, merge: last }),
    );
    this.#reflect(
      resources.Pod,
      new TableSink({ db, log, table: tables.localPods, parts: podParts(nodeName), merge: last }),
      {
        fieldSelector: `spec.nodeName=${nodeName}`,
      },
    );
    this.#reflect(
      resources.CiliumIdentity,
      new TableSink({ db, log, table: tables.identities, parts: identityParts, merge: last }),
    );
    this.#reflect(
      resources.PeerSet,
      new TableSink({ db, log, table: tables.peerSets, parts: peerSetParts, merge: mergePeerSet, owns: fromCluster }),
    );
    this.#reflect(
      resources.CiliumEndpointSlice,
      new TableSink({ db, log, table: tables.remoteEndpoints, parts: endpointSliceParts, merge: mergeEndpoint }),
    );
    this.#reflect(
      resources.ResolvedPolicy,
      all(
        new TableSink({ db, log, table: tables.policies, parts: policyParts, merge: mergePolicy }),
        new TableSink({ db, log, table: tables.unreadPolicies, parts: unreadPolicyParts, merge: last }),
        new TableSink({ db, log, table: tables.policyStatuses, parts: policyStatusParts, merge: last }),
        new PolicyVersions(core),
      ),
    );
    this.#serviceNames = new TableSink({ db, log, table: tables.services, parts: serviceParts, merge: last });
    this.#sources = sources ?? (() => []);
    const connection = this.#connection;
    this.#endpointWriter = new CiliumEndpointWriter({ core, client, nodeName, connection });
    this.#statusWriter = new NodePolicyStatusWriter({ core, client, nodeName, connection });
    this.#eventWriter = new PodEventWriter({ core, client, nodeName, connection });
    if (problems !== undefined)
      this.#conditionWriter = new NodeConditionWriter({ db, client, nodeName, connection, log, problems });
    const { nodes } = tables;
    if (local !== undefined)
      this.#annotationWriter = new NodeAnnotationWriter({ db, client, nodeName, nodes, local, connection, log });
  }

  start(): void {
    for (const { resource, sink, list } of this.#sources()) {
      if (resource.plural === resources.Service.plural) this.#reflect(resources.Service, all(sink, this.#serviceNames));
      else this.#reflect(resource, sink, list);
    }
    if (!this.#reflectors.has(resources.Service.plural))
      this.#services = this.#optional(
        resources.Service,
        this.#serviceNames,
        'Services cannot be read: events do not name them. The ClusterRole weir-agent must allow list and watch of services',
      );
    for (const reflector of this.#reflectors.values()) reflector.start();
    this.#services?.start();
    this.#endpointWriter.start();
    this.#statusWriter.start();
    this.#recoveries = this.#client.pulse?.recoveries.subscribe(() => {
      this.#endpointWriter.retry();
      this.#statusWriter.retry();
      this.#eventWriter.retry();
    });
    this.#eventWriter.start();
    this.#conditionWriter?.start();
    this.#annotationWriter?.start();
  }

  async stop(): Promise<void> {
    this.#recoveries?.unsubscribe();
    await Promise.all([
      this.#endpointWriter.stop(),
      this.#statusWriter.stop(),
      this.#services?.stop(),
      this.#eventWriter.stop(),
      this.#conditionWriter?.stop(),
      this.#annotationWriter?.stop(),
      ...Array.from(this.#reflectors.values(), (reflector) => reflector.stop()),
    ]);
    this.#nodes.stop();
    this.#connection.stop();
    this.#client.close();
  }

  /**
   * Says on the node's NodePolicyStatus that nothing is enforced here any more, with the uninstall request's value; resolves when the API
   * server has it, trying for as long as that takes. Nothing is written afterwards, CiliumEndpoints and Events neither.
   * @throws when `stop` comes first
   */
  async markRemoved(value: string): Promise<void> {
    await Promise.all([
      this.#endpointWriter.stop(),
      this.#eventWriter.stop(),
      this.#conditionWriter?.remove(),
      this.#annotationWriter?.remove(),
    ]);
    await this.#statusWriter.markRemoved(value);
  }

  status(): { readonly ok: boolean; readonly message: string } {
    const connection = this.#connection.status();
    const waiting = [...this.#reflectors].flatMap(([name, reflector]) => (reflector.synced ? [] : [name]));
    if (!connection.ok || waiting.length === 0) return connection;
    return { ok: false, message: `waiting for the first list of ${waiting.join(', ')}` };
  }

  /** Whether other nodes know this one's addresses. */
  announced(): { readonly ok: boolean; readonly message: string } {
    const problem = this.#annotationWriter?.problem();
    return { ok: problem === undefined, message: problem ?? 'other nodes know them' };
  }

  /** What nothing that is enforced depends on: nobody waits for it, and its failures are no failures of the connection. */
  #optional<T extends KubeObject>(resource: Resource<T>, sink: ReflectorSink<T>, refused: string): Reflector {
    let logged = false;
    return createReflector<T>({
      client: this.#client,
      resource,
      sink,
      trim: withoutManagedFields,
      onError: (error, { retryInMs }) => {
        const fields = { resource: resource.plural, error: messageOf(error), retryInMs };
        const mayNot = error instanceof ApiError && error.forbidden;
        if (mayNot && !logged) this.#log.warn(fields, refused);
        else this.#log.debug(fields, 'list or watch failed');
        logged ||= mayNot;
      },
    });
  }

  #reflect<T extends KubeObject>(
    resource: Resource<T>,
    sink: ReflectorSink<T>,
    list: Omit<ListOptions, 'signal'> = {},
  ): void {
    const { plural } = resource;
    let name = plural;
    for (let other = 2; this.#reflectors.has(name); other += 1) name = `${plural} (${other})`;
    this.#reflectors.set(
      name,
      createReflector<T>({
        client: this.#client,
        resource,
        sink,
        list,
        trim: withoutManagedFields,
        onFollowing: () => this.#connection.succeeded(name),
        onError: (error, { retryInMs }) => {
          this.#log.debug({ resource: name, error: messageOf(error), retryInMs }, 'list or watch failed');
          this.#connection.failed(name, error, retryInMs);
        },
      }),
    );
  }
}

/** Sets of imported rules are in the same table. */
function fromCluster({ origin }: PeerSetRow): boolean {
  return origin === 'cluster';
}

function all<T extends KubeObject>(...sinks: readonly ReflectorSink<T>[]): ReflectorSink<T> {
  return {
    replace: (items, version) => {
      for (const sink of sinks) sink.replace(items, version);
    },
    upsert: (item) => {
      for (const sink of sinks) sink.upsert(item);
    },
    delete: (item) => {
      for (const sink of sinks) sink.delete(item);
    },
  };
}
