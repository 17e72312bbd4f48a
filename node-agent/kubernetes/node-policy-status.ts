import { isDeepStrictEqual } from 'node:util';
import { ApiError, type KubeClient, type KubePatcher, type NodePolicyStatus, resources } from '@weir/kube';
import { delay } from '@weir/process/delay';
import { clipped } from '@weir/process/printable';
import type { Reconciler } from '@weir/reconciler';
import { query, type StateDB, type Table } from '@weir/statedb';
import { exhaustMap, filter, map, merge, type Subscription, share, takeUntil, timer } from 'rxjs';
import type { Core, Realised } from '../core.ts';
import { inputTables } from '../create-tables.ts';
import { NotStartedError } from '../errors.ts';
import { apiReconciler } from './api-reconciler.ts';
import type { Connection } from './connection.ts';
import { readEarlierReport } from './earlier-report.ts';

/** On a NodePolicyStatus: this node has done what the uninstall request of this value asked for. */
export const REMOVED_ANNOTATION = 'weir.dev/removed';

export const FIELD_MANAGER = 'weir-agent';
const MIN_INTERVAL_MS = 1000;
const REFRESH_MS = 60_000;
/** How often is looked whether inputs are late, and how long those on their way may take. */
const HELD_LOOK_MS = 2_000;
/** Milliseconds between two reports that say only how far the node has read, for each node of the cluster: 100 writes a second of all. */
const VERSION_MS_A_NODE = 10;

/** Characters of what is said of one failure; the operator tells no more of it. */
const LONGEST_MESSAGE = 1024;

/** What the node is to say of itself. Key: `node`, the only one. */
interface Report extends Pick<Realised, 'policies' | 'failures' | 'policyVersion'> {
  readonly node: string;
  /** The last word: nothing is enforced any more, as the uninstall request of this value asked. */
  readonly removed?: string;
}

/** What the API server has acknowledged. Key: `node`. */
interface Said {
  readonly node: string;
  /** The uid of the Node that owns the report, and when it was read. */
  readonly owner: string;
  readonly ownerReadAt: number;
  readonly report: Report;
}

/**
 * Reports what this node has in its kernel. The first change is written at once, then at most one write a second. A policy that selects
 * no pod of the node changes only how far it has read: such changes are written the less often the more nodes there are, and as a patch of
 * that alone. What says nothing new is written once a minute only, as such a patch, which changes nothing at the API server. All of it is written
 * where the answer is not what the node says, where there is no report any more, where the Node that owned it has been made anew, and
 * each time while it is not known how far the node has read (no `policyVersion`).
 *
 * The first report waits until every input table is complete and in the kernel: a restart does not take back what the node has said. Where that
 * lasts (`Core.held`), what it said is read and said again, with the reason why it is not as it should be.
 */
export class NodePolicyStatusWriter {
  readonly #core: Core;
  readonly #db: StateDB;
  readonly #client: KubeClient & KubePatcher;
  readonly #nodeName: string;
  readonly #refreshMs: number;
  readonly #heldLookMs: number;
  readonly #reports: Table<Report>;
  readonly #said: Table<Said>;
  readonly #connection: Connection;
  readonly #reconciler: Reconciler<Report>;
  readonly #stop = new AbortController();
  /** Ends the reports, but not the last word. */
  readonly #quiet = new AbortController();
  #subscription: Subscription | undefined;
  #beginning: Promise<void> | undefined;

  constructor(options: {
    readonly core: Core;
    readonly client: KubeClient & KubePatcher;
    readonly nodeName: string;
    readonly connection: Connection;
    /** Least time between two writes, in milliseconds. Default 1000. */
    readonly intervalMs?: number;
    /** Time after which the report is written again though nothing has changed, in milliseconds. Default 60,000. */
    readonly refreshMs?: number;
    /** Time from one look whether the report must do without all inputs to the next, in milliseconds. Default 2000. */
    readonly heldLookMs?: number;
  }) {
    const { core, client, nodeName, connection, intervalMs = MIN_INTERVAL_MS, refreshMs = REFRESH_MS } = options;
    this.#heldLookMs = options.heldLookMs ?? HELD_LOOK_MS;
    const { db } = core;
    this.#core = core;
    this.#db = db;
    this.#client = client;
    this.#nodeName = nodeName;
    this.#refreshMs = refreshMs;
    this.#connection = connection;
    this.#reports = db.table<Report>({ name: 'nodePolicyStatus', key: (row) => row.node, equals: isDeepStrictEqual });
    this.#said = db.table<Said>({ name: 'writtenNodePolicyStatus', key: (row) => row.node });
    this.#reconciler = apiReconciler({
      name: 'node-policy-status',
      what: 'nodepolicystatus',
      connection,
      ending: this.#stop.signal,
      db,
      table: this.#reports,
      operations: { update: (report) => this.#update(report), delete: () => undefined },
      roundsPerSecond: 1000 / intervalMs,
      refreshIntervalMs: refreshMs,
    });
  }

  start(): void {
    if (!this.#quiet.signal.aborted) this.#beginning ??= this.#begin();
  }

  /** What the API server has not taken is tried now. */
  retry(): void {
    this.#reconciler.retry();
  }

  async stop(): Promise<void> {
    this.#stop.abort(new Error('stopped'));
    this.#subscription?.unsubscribe();
    await this.#beginning;
    await this.#reconciler.stop();
  }

  /**
   * The last report: this node enforces nothing any more, as the uninstall request `value` asked. Tries until the API server has it.
   * Nothing is written afterwards.
   * @throws when `stop` comes first
   */
  async markRemoved(value: string): Promise<void> {
    const { signal } = this.#stop;
    this.#quiet.abort(new Error('this node has been cleared'));
    this.#subscription?.unsubscribe();
    await this.#beginning;
    this.#subscription?.unsubscribe();
    signal.throwIfAborted();
    this.#report({ node: this.#nodeName, policies: new Map(), failures: [], removed: value });
    this.#reconciler.start();
    await this.#db.waitFor(query.get(this.#said, this.#nodeName), ([said]) => said?.report.removed === value, signal);
    await this.#reconciler.stop();
  }

  async #begin(): Promise<void> {
    const signal = AbortSignal.any([this.#stop.signal, this.#quiet.signal]);
    await this.#completeOrHeld(signal);
    if (signal.aborted) return;
    this.#subscription = this.#follow();
    this.#report(this.#reportOf(this.#core.realised()));
    this.#reconciler.start();
  }

  /** What says only how far the node has read is held back, unless something else comes meanwhile, and then says what is so by then. */
  #follow(): Subscription {
    const reports = this.#core.realisedChanges.pipe(
      map((realised) => {
        const report = this.#reportOf(realised);
        return { report, waitMs: this.#waitMs(report) };
      }),
      share(),
    );
    const urgent = reports.pipe(filter(({ waitMs }) => waitMs === 0));
    const late = reports.pipe(
      filter(({ waitMs }) => waitMs > 0),
      // Spread, so that the nodes do not all write together.
      exhaustMap(({ waitMs }) => timer(waitMs * (0.5 + Math.random())).pipe(takeUntil(urgent))),
      map(() => ({ report: this.#reportOf(this.#core.realised()) })),
    );
    return merge(urgent, late).subscribe(({ report }) => this.#report(report));
  }

  /** How long a report may wait, in milliseconds. */
  #waitMs(report: Report): number {
    using snapshot = this.#db.read();
    const before = snapshot.get(this.#reports, this.#nodeName);
    const waitMs = VERSION_MS_A_NODE * snapshot.count(this.#core.tables.nodes);
    if (before === undefined || waitMs <= MIN_INTERVAL_MS) return 0;
    return isDeepStrictEqual({ ...before, policyVersion: report.policyVersion }, report) ? waitMs : 0;
  }

  #reportOf({ policies, failures, policyVersion }: Realised): Report {
    return { node: this.#nodeName, policies, failures: failures.map(told).sort(byPolicy), policyVersion };
  }

  /**
   * Resolves when all is in the kernel, or when that takes long and what was said before is known; or on abort. After an outage of the API server
   * what was said before is read as soon as all else: what is then on its way is waited for.
   */
  async #completeOrHeld(signal: AbortSignal): Promise<void> {
    let complete = false;
    const completing = this.#complete(signal).then(() => {
      complete = true;
    });
    while (!complete && !signal.aborted) {
      if (this.#core.held() !== undefined) {
        await this.#earlierOrComplete(signal);
        const held = this.#core.held();
        if (held?.reason === 'ImportedRulesUnknown') return;
        await Promise.race([completing, delay(this.#heldLookMs, signal)]);
        if (held !== undefined && this.#core.held() !== undefined) return;
      } else await Promise.race([completing, delay(this.#heldLookMs, signal)]);
    }
  }

  /** Resolves when what was said before is known, or when it is not needed any more; or on abort. */
  async #earlierOrComplete(signal: AbortSignal): Promise<void> {
    const either = new AbortController();
    const within = AbortSignal.any([signal, either.signal]);
    const options = { core: this.#core, client: this.#client, nodeName: this.#nodeName, connection: this.#connection };
    const both = [readEarlierReport({ ...options, signal: within }), this.#complete(within)];
    await Promise.race(both);
    either.abort(new Error('the other came first'));
    await Promise.all(both);
  }

  /** Resolves when all inputs have been received and are in the kernel, or on abort. */
  async #complete(signal: AbortSignal): Promise<void> {
    const { db, tables } = this.#core;
    try {
      await Promise.all(inputTables(tables).map((table) => db.initialisedWatch(table).wait(signal)));
      await this.#core.waitPolicyRevision(this.#core.policyRevision(), signal);
    } catch (error) {
      if (signal.aborted) return;
      if (!(error instanceof NotStartedError)) throw error;
      // The node was cleared meanwhile: it has only its last word to say, or this is stopped.
      await new Promise((resolve) => signal.addEventListener('abort', resolve, { once: true }));
    }
  }

  #report(report: Report): void {
    this.#db.write([this.#reports], (txn) => txn.upsert(this.#reports, report));
  }

  async #update(report: Report): Promise<void> {
    const { acknowledged: revision } = this.#core.realised();
    const owner = await this.#owner();
    const status = statusOf(report, revision);
    if (!this.#saidAllBut(report, owner.owner) || !(await this.#patch(status)))
      await this.#apply(report, owner.owner, status);
    this.#db.write([this.#said], (txn) => txn.upsert(this.#said, { node: this.#nodeName, ...owner, report }));
  }

  /** Whether the API server has taken everything of the report but how far the node has read. */
  #saidAllBut({ policyVersion, ...report }: Report, owner: string): boolean {
    using snapshot = this.#db.read();
    const said = snapshot.get(this.#said, this.#nodeName);
    if (said === undefined || said.owner !== owner || policyVersion === undefined) return false;
    const { policyVersion: _, ...before } = said.report;
    return isDeepStrictEqual(before, report);
  }

  /** Says how far the node has read; false when the API server holds something else for the rest, or nothing. */
  async #patch({ revision, policyVersion, ...rest }: NodePolicyStatus['status']): Promise<boolean> {
    try {
      const patch = { status: { revision, policyVersion } };
      const answer = await this.#client.patch(resources.NodePolicyStatus, this.#nodeName, patch);
      const { policies, failures } = (answer as NodePolicyStatus).status ?? {};
      return isDeepStrictEqual({ policies, failures }, rest);
    } catch (error) {
      if (error instanceof ApiError && error.notFound) return false;
      throw error;
    }
  }

  async #apply({ removed }: Report, owner: string, status: NodePolicyStatus['status']): Promise<void> {
    const object: NodePolicyStatus = {
      apiVersion: 'weir.dev/v1alpha1',
      kind: 'NodePolicyStatus',
      metadata: {
        name: this.#nodeName,
        ...(removed === undefined ? {} : { annotations: { [REMOVED_ANNOTATION]: removed } }),
        ownerReferences: [{ apiVersion: 'v1', kind: 'Node', name: this.#nodeName, uid: owner }],
      },
      status,
    };
    const answer = await this.#client.apply(resources.NodePolicyStatus, object, {
      fieldManager: FIELD_MANAGER,
      force: true,
    });
    // An apply leaves there what only a patch has said.
    if (status.policyVersion === undefined && answer.status?.policyVersion !== undefined)
      await this.#client.patch(resources.NodePolicyStatus, this.#nodeName, { status: { policyVersion: null } });
  }

  /** Read anew for each refresh, but not for each change. */
  async #owner(): Promise<Pick<Said, 'owner' | 'ownerReadAt'>> {
    const now = performance.now();
    using snapshot = this.#db.read();
    const said = snapshot.get(this.#said, this.#nodeName);
    if (said !== undefined && now - said.ownerReadAt < this.#refreshMs / 2) return said;
    const { metadata } = await this.#client.get(resources.KubeNode, this.#nodeName, undefined, this.#stop.signal);
    return { owner: metadata.uid ?? '', ownerReadAt: now };
  }
}

function statusOf({ policies, failures, policyVersion }: Report, revision: number): NodePolicyStatus['status'] {
  return {
    policies: Object.fromEntries([...policies].sort(([a], [b]) => (a < b ? -1 : 1))),
    failures,
    revision,
    ...(policyVersion === undefined ? {} : { policyVersion }),
  };
}

function told<T extends Realised['failures'][number]>(failure: T): T {
  return { ...failure, message: clipped(failure.message, LONGEST_MESSAGE) };
}

function byPolicy(a: Realised['failures'][number], b: Realised['failures'][number]): number {
  return a.uid < b.uid ? -1 : a.uid > b.uid ? 1 : a.generation - b.generation;
}
