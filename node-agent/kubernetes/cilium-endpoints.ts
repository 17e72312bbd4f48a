import { isDeepStrictEqual } from 'node:util';
import { ApiError, Backoff, type CiliumEndpoint, delay, type KubeClient, resources } from '@weir/kube';
import { formatLabels } from '@weir/labels';
import { query } from '@weir/statedb';
import { messageOf } from '../config/system-error.ts';
import type { Core } from '../core.ts';
import type { ContainerPort, EndpointStateRow } from '../tables.ts';
import type { Connection } from './connection.ts';
import { FIELD_MANAGER } from './node-policy-status.ts';
import { Wakeup } from './wakeup.ts';

interface Written {
  readonly object: CiliumEndpoint;
  /** Of the object on the server: what a delete must hit, should a pod of the same name be on another node by then. */
  readonly uid: string | undefined;
}

/**
 * One CiliumEndpoint for each local pod endpoint (`kubectl get cep`), owned by its pod, so that it goes with it. Deleted with the endpoint.
 * Written only when something of it changed.
 */
export class CiliumEndpointWriter {
  readonly #core: Core;
  readonly #client: KubeClient;
  readonly #nodeName: string;
  readonly #connection: Connection;
  readonly #written = new Map<string, Written>();
  readonly #stop = new AbortController();
  readonly #wakeup = new Wakeup();
  #loop: Promise<void> | undefined;

  constructor(options: {
    readonly core: Core;
    readonly client: KubeClient;
    readonly nodeName: string;
    readonly connection: Connection;
  }) {
    this.#core = options.core;
    this.#client = options.client;
    this.#nodeName = options.nodeName;
    this.#connection = options.connection;
  }

  start(): void {
    this.#loop ??= this.#run();
  }

  async stop(): Promise<void> {
    this.#stop.abort(new Error('stopped'));
    await this.#loop;
  }

  async #run(): Promise<void> {
    const { signal } = this.#stop;
    const backoff = new Backoff({ minMs: 200, maxMs: 15_000 });
    while (!signal.aborted) {
      const { desired, forget } = this.#desired();
      try {
        await this.#reconcile(desired, signal);
        backoff.reset();
        this.#connection.succeeded('ciliumendpoints');
        await this.#wakeup.wait(signal);
      } catch (error) {
        const retryInMs = backoff.next();
        if (!signal.aborted) this.#connection.failed('ciliumendpoints', messageOf(error), retryInMs);
        await delay(retryInMs, signal);
      } finally {
        forget();
      }
    }
  }

  async #reconcile(desired: ReadonlyMap<string, CiliumEndpoint>, signal: AbortSignal): Promise<void> {
    let failure: unknown;
    for (const [key, object] of desired) {
      if (signal.aborted) return;
      if (isDeepStrictEqual(this.#written.get(key)?.object, object)) continue;
      try {
        const answer = await this.#client.apply(resources.CiliumEndpoint, object, {
          fieldManager: FIELD_MANAGER,
          force: true,
        });
        this.#written.set(key, { object, uid: answer.metadata.uid });
      } catch (error) {
        failure ??= error; // the others are tried all the same
      }
    }
    for (const [key, { object, uid }] of [...this.#written]) {
      if (desired.has(key)) continue;
      try {
        await this.#client.delete(
          resources.CiliumEndpoint,
          object.metadata.name,
          object.metadata.namespace,
          uid === undefined ? {} : { uid },
        );
        this.#written.delete(key);
      } catch (error) {
        // Gone with its pod, or another node's by now.
        if (error instanceof ApiError && (error.notFound || error.conflict)) this.#written.delete(key);
        else failure ??= error;
      }
    }
    if (failure !== undefined) throw failure;
  }

  /** Wakes the loop on the next change of what it read. */
  #desired(): { readonly desired: ReadonlyMap<string, CiliumEndpoint>; readonly forget: () => void } {
    const { db, tables } = this.#core;
    using snapshot = db.read();
    const endpoints = snapshot.watch(query.all(tables.endpoints));
    const states = snapshot.watch(query.all(tables.endpointStates));
    const pods = snapshot.watch(query.all(tables.localPods));
    const watches = [endpoints.watch, states.watch, pods.watch].map((watch) => watch.onFire(() => this.#wakeup.wake()));
    const node = [...snapshot.all(tables.nodes)].find((row) => row.name === this.#nodeName);
    const byId = new Map(states.rows.map((state) => [state.id, state]));
    const known = new Map(pods.rows.map((pod) => [`${pod.namespace}/${pod.name}`, pod]));
    const desired = new Map<string, CiliumEndpoint>();
    for (const { id, pod } of endpoints.rows) {
      const state = byId.get(id);
      const key = pod === undefined ? '' : `${pod.namespace}/${pod.name}`;
      // Without its pod's uid the object would have no owner, and would outlive it.
      const uid = pod?.uid ?? known.get(key)?.uid;
      if (pod === undefined || state === undefined || uid === undefined || uid === '') continue;
      const ports = known.get(key)?.namedPorts ?? [];
      desired.set(key, ciliumEndpoint(pod, uid, state, node?.addresses[0] ?? '', ports));
    }
    return {
      desired,
      forget: () => {
        for (const take of watches) take();
      },
    };
  }
}

function ciliumEndpoint(
  pod: { readonly namespace: string; readonly name: string },
  uid: string,
  state: EndpointStateRow,
  node: string,
  namedPorts: readonly ContainerPort[],
): CiliumEndpoint {
  return {
    apiVersion: 'cilium.io/v2',
    kind: 'CiliumEndpoint',
    metadata: {
      name: pod.name,
      namespace: pod.namespace,
      ownerReferences: [{ apiVersion: 'v1', kind: 'Pod', name: pod.name, uid }],
    },
    status: {
      id: state.id,
      identity: { id: state.identity, labels: formatLabels(state.labels) },
      networking: { addressing: [{ ipv4: state.ipv4 }], node },
      policy: {
        ingress: { enforcing: state.enforced.ingress, state: state.state === 'ready' ? 'ok' : state.state },
        egress: { enforcing: state.enforced.egress, state: state.state === 'ready' ? 'ok' : state.state },
      },
      state: state.state,
      ...(namedPorts.length === 0 ? {} : { 'named-ports': namedPorts }),
    },
  };
}
