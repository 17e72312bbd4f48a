import { isDeepStrictEqual } from 'node:util';
import {
  type KubeClient,
  MOST_REPORTED_FAILURES,
  MOST_REPORTED_MESSAGES,
  type NodePolicyStatus,
  resources,
} from '@weir/kube';
import { compareText } from '@weir/labels';
import { clipped } from '@weir/process/printable';
import type { Reconciler } from '@weir/reconciler';
import { query, type StateDB, type Table } from '@weir/statedb';
import { exhaustMap, filter, map, merge, type Subscription, share, takeUntil, timer } from 'rxjs';
import type { Core, Realised } from '../core.ts';
import { inputTables } from '../create-tables.ts';
import { NotStartedError } from '../errors.ts';
import { apiReconciler } from './api-reconciler.ts';
import type { Connection } from './connection.ts';

/** On a NodePolicyStatus: this node has done what the uninstall request of this value asked for. */
export const REMOVED_ANNOTATION = 'weir.dev/removed';

export const FIELD_MANAGER = 'weir-agent';
const MIN_INTERVAL_MS = 1000;
const REFRESH_MS = 60_000;
/** Milliseconds between two reports that nobody waits for, for each node of the cluster: 100 writes a second of all. */
const LATE_MS_A_NODE = 10;

/** Characters of one failure; the operator shows no more of it. */
const LONGEST_MESSAGE = 1024;
const ELSEWHERE = '`weir policy status` on the node has the message';

/** What the node is to say of itself. Key: `node`, the only one. */
interface Report extends Omit<NodePolicyStatus['status'], 'revision'>, Pick<Realised, 'ownVersion'> {
  readonly node: string;
  /** The last report: nothing is enforced any more, as the uninstall request of this value asked. */
  readonly removed?: string;
}

type PolicyFailure = Realised['failures'][number];

/** What the API server has acknowledged. Key: `node`. */
interface Written {
  readonly node: string;
  /** The uid of the Node that owns the report, and when it was read. */
  readonly owner: string;
  readonly ownerReadAt: number;
  readonly report: Report;
}

/**
 * Reports how far this node's kernel is, and what it could not do. The first change is written at once, then at most one write a second. A policy
 * that selects no pod of the node changes only the version, and pods only the counts: such changes are written the less often the more nodes there
 * are. What says nothing new is written once a minute, which changes nothing at the API server, unless the report is gone or not as it was left,
 * or the Node that owned it has been recreated.
 *
 * The first report waits until every input table is complete and in the kernel. Until then the report of the agent before stays: what it says is in
 * the kernel.
 */
export class NodePolicyStatusWriter {
  readonly #core: Core;
  readonly #db: StateDB;
  readonly #client: KubeClient;
  readonly #nodeName: string;
  readonly #refreshMs: number;
  readonly #reports: Table<Report>;
  readonly #written: Table<Written>;
  readonly #reconciler: Reconciler<Report>;
  readonly #stop = new AbortController();
  /** Ends all reports but the last one. */
  readonly #quiet = new AbortController();
  #subscription: Subscription | undefined;
  #beginning: Promise<void> | undefined;

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
    const { core, client, nodeName, connection, intervalMs = MIN_INTERVAL_MS, refreshMs = REFRESH_MS } = options;
    const { db } = core;
    this.#core = core;
    this.#db = db;
    this.#client = client;
    this.#nodeName = nodeName;
    this.#refreshMs = refreshMs;
    this.#reports = db.table<Report>({ name: 'nodePolicyStatus', key: (row) => row.node, equals: isDeepStrictEqual });
    this.#written = db.table<Written>({ name: 'writtenNodePolicyStatus', key: (row) => row.node });
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
    const nothing = { counts: { endpoints: 0, policies: 0 }, failures: [], failureCount: 0 };
    this.#report({ node: this.#nodeName, ...nothing, removed: value });
    this.#reconciler.start();
    await this.#db.waitFor(
      query.get(this.#written, this.#nodeName),
      ([written]) => written?.report.removed === value,
      signal,
    );
    await this.#reconciler.stop();
  }

  async #begin(): Promise<void> {
    const signal = AbortSignal.any([this.#stop.signal, this.#quiet.signal]);
    await this.#complete(signal);
    if (signal.aborted) return;
    this.#subscription = this.#follow();
    this.#report(this.#reportOf(this.#core.realised()));
    this.#reconciler.start();
  }

  /** Delays changes that nobody waits for, unless another change comes meanwhile; the report then has the state of that time. */
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
    const waitMs = LATE_MS_A_NODE * snapshot.count(this.#core.tables.nodes);
    if (before === undefined || waitMs <= MIN_INTERVAL_MS) return 0;
    const { policyVersion, counts } = report;
    return isDeepStrictEqual({ ...before, policyVersion, counts }, report) ? waitMs : 0;
  }

  #reportOf({ policyVersion, ownVersion, counts, failures }: Realised): Report {
    return {
      node: this.#nodeName,
      ...(policyVersion === undefined ? {} : { policyVersion, ownVersion }),
      counts,
      failures: failures.toSorted(byPolicy).slice(0, MOST_REPORTED_FAILURES).map(shortened),
      failureCount: failures.length,
    };
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
      // The node was cleared meanwhile: only its last report is due, or this is stopped.
      await new Promise((resolve) => signal.addEventListener('abort', resolve, { once: true }));
    }
  }

  #report(report: Report): void {
    this.#db.write([this.#reports], (txn) => txn.upsert(this.#reports, report));
  }

  async #update(report: Report): Promise<void> {
    const { acknowledged: revision } = this.#core.realised();
    const owner = await this.#owner();
    const { node, removed, ownVersion: _, ...status } = report;
    const object: NodePolicyStatus = {
      apiVersion: 'weir.dev/v1alpha1',
      kind: 'NodePolicyStatus',
      metadata: {
        name: node,
        ...(removed === undefined ? {} : { annotations: { [REMOVED_ANNOTATION]: removed } }),
        ownerReferences: [{ apiVersion: 'v1', kind: 'Node', name: node, uid: owner.owner }],
      },
      status: { ...status, revision },
    };
    await this.#client.apply(resources.NodePolicyStatus, object, { fieldManager: FIELD_MANAGER, force: true });
    this.#db.write([this.#written], (txn) => txn.upsert(this.#written, { node, ...owner, report }));
  }

  /** Read again for each refresh, but not for each change. */
  async #owner(): Promise<Pick<Written, 'owner' | 'ownerReadAt'>> {
    const now = performance.now();
    using snapshot = this.#db.read();
    const written = snapshot.get(this.#written, this.#nodeName);
    if (written !== undefined && now - written.ownerReadAt < this.#refreshMs / 2) return written;
    const { metadata } = await this.#client.get(resources.KubeNode, this.#nodeName, undefined, this.#stop.signal);
    return { owner: metadata.uid ?? '', ownerReadAt: now };
  }
}

function shortened(failure: PolicyFailure, at: number): PolicyFailure {
  return { ...failure, message: at < MOST_REPORTED_MESSAGES ? clipped(failure.message, LONGEST_MESSAGE) : ELSEWHERE };
}

function byPolicy(a: PolicyFailure, b: PolicyFailure): number {
  return compareText(a.uid, b.uid) || a.generation - b.generation || compareText(a.reason, b.reason);
}
