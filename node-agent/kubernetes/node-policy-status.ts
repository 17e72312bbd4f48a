import { isDeepStrictEqual } from 'node:util';
import { Backoff, delay, type KubeClient, type NodePolicyStatus, resources } from '@weir/kube';
import type { Subscription } from 'rxjs';
import { messageOf } from '../config/system-error.ts';
import type { Core, Realised } from '../core.ts';
import { inputTables } from '../create-tables.ts';
import type { Connection } from './connection.ts';
import { REMOVED_ANNOTATION } from './uninstall-mark.ts';
import { Wakeup } from './wakeup.ts';

export const FIELD_MANAGER = 'weir-agent';
const MIN_INTERVAL_MS = 1000;
const REFRESH_MS = 60_000;

/**
 * Reports what this node has in its kernel. The first change is written at once, then at most one write a second. What says nothing new
 * is written once a minute only, which changes nothing at the API server, unless somebody has deleted the report, or the Node that owned
 * it has been made anew. The first report waits until every input table is complete and in the kernel: a restart does not take back what the
 * node has said.
 */
export class NodePolicyStatusWriter {
  readonly #core: Core;
  readonly #client: KubeClient;
  readonly #nodeName: string;
  readonly #connection: Connection;
  readonly #intervalMs: number;
  readonly #refreshMs: number;
  readonly #stop = new AbortController();
  /** Ends the reports, but not the last word. */
  readonly #quiet = new AbortController();
  readonly #wakeup = new Wakeup();
  #subscription: Subscription | undefined;
  #loop: Promise<void> | undefined;
  #uid: string | undefined;

  constructor(options: {
    readonly core: Core;
    readonly client: KubeClient;
    readonly nodeName: string;
    readonly connection: Connection;
    /** Least time between two writes, in milliseconds. Default 1000. */
    readonly intervalMs?: number;
    /** Time after which the report is written again though nothing has changed, in milliseconds. Default 60,000. */
    readonly refreshMs?: number;
  }) {
    this.#core = options.core;
    this.#client = options.client;
    this.#nodeName = options.nodeName;
    this.#connection = options.connection;
    this.#intervalMs = options.intervalMs ?? MIN_INTERVAL_MS;
    this.#refreshMs = options.refreshMs ?? REFRESH_MS;
  }

  start(): void {
    if (this.#quiet.signal.aborted) return;
    this.#subscription = this.#core.realisedChanges.subscribe(() => this.#wakeup.wake());
    this.#wakeup.wake();
    this.#loop ??= this.#run();
  }

  async stop(): Promise<void> {
    this.#subscription?.unsubscribe();
    this.#stop.abort(new Error('stopped'));
    await this.#loop;
  }

  /**
   * The last report: this node enforces nothing any more, as the uninstall request `value` asked. Tries until the API server has it.
   * Nothing is written afterwards.
   * @throws when `stop` comes first
   */
  async markRemoved(value: string): Promise<void> {
    const { signal } = this.#stop;
    this.#subscription?.unsubscribe();
    this.#quiet.abort(new Error('this node has been cleared'));
    await this.#loop;
    const backoff = new Backoff({ minMs: 200, maxMs: 5_000 });
    while (true) {
      signal.throwIfAborted();
      try {
        const { revision } = this.#core.realised();
        await this.#apply(await this.#nodeUid(signal), { policies: {}, failures: [], revision }, value);
        this.#connection.succeeded('nodepolicystatus');
        return;
      } catch (error) {
        const retryInMs = backoff.next();
        if (!signal.aborted) this.#connection.failed('nodepolicystatus', messageOf(error), retryInMs);
        await delay(retryInMs, signal);
      }
    }
  }

  async #run(): Promise<void> {
    const signal = AbortSignal.any([this.#stop.signal, this.#quiet.signal]);
    const backoff = new Backoff({ minMs: 200, maxMs: 15_000 });
    let written: Omit<NodePolicyStatus['status'], 'revision'> | undefined;
    await this.#complete(signal);
    while (!signal.aborted) {
      const woken = await this.#wakeup.wait(signal, this.#refreshMs);
      if (signal.aborted) return;
      if (!woken) this.#uid = undefined;
      const { revision, ...content } = statusOf(this.#core.realised());
      if (woken && written !== undefined && isDeepStrictEqual(written, content)) continue;
      try {
        await this.#apply(await this.#nodeUid(signal), { ...content, revision });
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

  async #nodeUid(signal: AbortSignal): Promise<string> {
    this.#uid ??= (await this.#client.get(resources.KubeNode, this.#nodeName, undefined, signal)).metadata.uid ?? '';
    return this.#uid;
  }

  async #apply(uid: string, status: NodePolicyStatus['status'], removed?: string): Promise<void> {
    const object: NodePolicyStatus = {
      apiVersion: 'weir.dev/v1alpha1',
      kind: 'NodePolicyStatus',
      metadata: {
        name: this.#nodeName,
        ...(removed === undefined ? {} : { annotations: { [REMOVED_ANNOTATION]: removed } }),
        ownerReferences: [{ apiVersion: 'v1', kind: 'Node', name: this.#nodeName, uid }],
      },
      status,
    };
    await this.#client.apply(resources.NodePolicyStatus, object, { fieldManager: FIELD_MANAGER, force: true });
  }

  /** Resolves when all inputs have been received and are in the kernel, or on abort. */
  async #complete(signal: AbortSignal): Promise<void> {
    const { db, tables } = this.#core;
    try {
      await Promise.all(inputTables(tables).map((table) => db.initialisedWatch(table).wait(signal)));
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
