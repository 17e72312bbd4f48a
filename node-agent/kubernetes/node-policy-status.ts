import { isDeepStrictEqual } from 'node:util';
import { Backoff, delay, type KubeClient, type NodePolicyStatus, resources } from '@weir/kube';
import type { AnyTable } from '@weir/statedb';
import type { Subscription } from 'rxjs';
import { messageOf } from '../config/system-error.ts';
import type { Core, Realised } from '../core.ts';
import type { Connection } from './connection.ts';
import { Wakeup } from './wakeup.ts';

export const FIELD_MANAGER = 'weir-agent';
const MIN_INTERVAL_MS = 1000;

/**
 * Reports what this node has in its kernel. The first change is written at once, then at most one write a second, and never one that
 * says nothing new. The first report waits until every input table is complete and in the kernel: a restart does not take back what the
 * node has said.
 */
export class NodePolicyStatusWriter {
  readonly #core: Core;
  readonly #client: KubeClient;
  readonly #nodeName: string;
  readonly #connection: Connection;
  readonly #intervalMs: number;
  readonly #stop = new AbortController();
  readonly #wakeup = new Wakeup();
  #subscription: Subscription | undefined;
  #loop: Promise<void> | undefined;

  constructor(options: {
    readonly core: Core;
    readonly client: KubeClient;
    readonly nodeName: string;
    readonly connection: Connection;
    /** Least time between two writes, in milliseconds. Default 1000. */
    readonly intervalMs?: number;
  }) {
    this.#core = options.core;
    this.#client = options.client;
    this.#nodeName = options.nodeName;
    this.#connection = options.connection;
    this.#intervalMs = options.intervalMs ?? MIN_INTERVAL_MS;
  }

  start(): void {
    this.#subscription = this.#core.realisedChanges.subscribe(() => this.#wakeup.wake());
    this.#wakeup.wake();
    this.#loop ??= this.#run();
  }

  async stop(): Promise<void> {
    this.#subscription?.unsubscribe();
    this.#stop.abort(new Error('stopped'));
    await this.#loop;
  }

  async #run(): Promise<void> {
    const { signal } = this.#stop;
    const backoff = new Backoff({ minMs: 200, maxMs: 15_000 });
    let written: Omit<NodePolicyStatus['status'], 'revision'> | undefined;
    let uid: string | undefined;
    await this.#complete(signal);
    while (!signal.aborted) {
      await this.#wakeup.wait(signal);
      if (signal.aborted) return;
      const { revision, ...content } = statusOf(this.#core.realised());
      if (written !== undefined && isDeepStrictEqual(written, content)) continue;
      try {
        uid ??= (await this.#client.get(resources.KubeNode, this.#nodeName, undefined, signal)).metadata.uid ?? '';
        await this.#apply(uid, { ...content, revision });
        written = content;
        backoff.reset();
        this.#connection.succeeded('nodepolicystatus');
        await delay(this.#intervalMs, signal);
      } catch (error) {
        const retryInMs = backoff.next();
        if (!signal.aborted) this.#connection.failed('nodepolicystatus', messageOf(error), retryInMs);
        await delay(retryInMs, signal);
        this.#wakeup.wake();
      }
    }
  }

  async #apply(uid: string, status: NodePolicyStatus['status']): Promise<void> {
    const object: NodePolicyStatus = {
      apiVersion: 'weir.dev/v1alpha1',
      kind: 'NodePolicyStatus',
      metadata: {
        name: this.#nodeName,
        ownerReferences: [{ apiVersion: 'v1', kind: 'Node', name: this.#nodeName, uid }],
      },
      status,
    };
    await this.#client.apply(resources.NodePolicyStatus, object, { fieldManager: FIELD_MANAGER, force: true });
  }

  /** Resolves when all inputs have been received and are in the kernel, or on abort. */
  async #complete(signal: AbortSignal): Promise<void> {
    const { db, tables } = this.#core;
    const inputs = [
      tables.policies,
      tables.peerSets,
      tables.identities,
      tables.remoteEndpoints,
      tables.nodes,
      tables.localPods,
      tables.namespaces,
    ];
    try {
      await Promise.all(inputs.map((table) => db.initialisedWatch(table as AnyTable).wait(signal)));
      await this.#core.waitPolicyRevision(this.#core.policyRevision(), signal);
    } catch (error) {
      if (!signal.aborted) throw error;
    }
  }
}

function statusOf(realised: Realised): NodePolicyStatus['status'] {
  return {
    policies: Object.fromEntries([...realised.policies].sort(([a], [b]) => (a < b ? -1 : 1))),
    failures: [...realised.failures].sort((a, b) =>
      a.uid < b.uid ? -1 : a.uid > b.uid ? 1 : a.generation - b.generation,
    ),
    revision: realised.revision,
  };
}
