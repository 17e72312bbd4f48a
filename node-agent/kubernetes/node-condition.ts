import { ApiError, type KubeClient, type KubeNode, type NodeCondition, resources } from '@weir/kube';
import { messageOf } from '@weir/process/errors';
import { clipped } from '@weir/process/printable';
import type { Reconciler } from '@weir/reconciler';
import type { StateDB, Table } from '@weir/statedb';
import type { Logger } from '../core.ts';
import type { NodeProblem } from '../parts/contract.ts';
import { apiReconciler } from './api-reconciler.ts';
import type { Connection } from './connection.ts';

/** The condition's type: True while something is wrong, as with the conditions of kubelet and of the node problem detector. */
const CONDITION = 'WeirProblem';
const FIELD_MANAGER = 'weir-agent-condition';
/** How often is looked whether there is a problem. It is one that two looks in a row found. */
const LOOK_MS = 5_000;
/** Between two writes, and two attempts at one, so that a message which changes all the time makes six a minute. */
const INTERVAL_MS = 10_000;
/** How often a lasting problem is written again, and a refused write retried: the Node may be a new one, or somebody may have removed the condition. */
const AGAIN_MS = 60_000;
/** Characters of a message. */
const LONGEST_MESSAGE = 1024;

/** Of the problems that there are, the first of these is the condition's reason; those of other parts come after them. */
export const WORST_FIRST = [
  'DatapathFailing',
  'InputsIncomplete',
  'ImportedRulesUnknown',
  'NoOperatorLeads',
  'AddressConflict',
  'PluginNotInUse',
  'RoutesMissing',
  'NodeAddressesUnknown',
  'ServicesFailing',
  'MasqueradeFailing',
];

/** What is wrong now. */
export type NodeProblems = () => readonly NodeProblem[];

/** The wanted condition. Key: `node`, the only one. */
interface Wanted {
  readonly node: string;
  readonly reason: string;
  readonly message: string;
  /** Grows when the condition is due to be written again; 0 without a problem. */
  readonly repeat: number;
}

/**
 * Says what is wrong with this node in its Node's condition `WeirProblem`, where `kubectl describe node` shows it. A node that never had a problem
 * has no such condition, and nothing is written for it. Where the agent may not write it, that is logged once.
 */
export class NodeConditionWriter {
  readonly #db: StateDB;
  readonly #client: KubeClient;
  readonly #nodeName: string;
  readonly #problems: NodeProblems;
  readonly #lookMs: number;
  readonly #againMs: number;
  readonly #log: Logger;
  readonly #table: Table<Wanted>;
  readonly #reconciler: Reconciler<Wanted>;
  readonly #ending = new AbortController();
  #timer: NodeJS.Timeout | undefined;
  #foundBefore = false;
  /** The last try was refused. */
  #mayNot = false;
  #saidSo = false;

  constructor(options: {
    readonly db: StateDB;
    readonly client: KubeClient;
    readonly nodeName: string;
    readonly connection: Connection;
    readonly log: Logger;
    readonly problems: NodeProblems;
    /** Time from one look to the next, in milliseconds. Default 5000. */
    readonly lookMs?: number;
    /** Time after which a lasting problem is written again, in milliseconds. Default 60,000. */
    readonly againMs?: number;
    /** Least time between two writes, in milliseconds. Default 10,000. */
    readonly intervalMs?: number;
  }) {
    const { db, client, nodeName, connection, log, problems, lookMs = LOOK_MS, intervalMs = INTERVAL_MS } = options;
    this.#db = db;
    this.#client = client;
    this.#nodeName = nodeName;
    this.#problems = problems;
    this.#lookMs = lookMs;
    this.#againMs = options.againMs ?? AGAIN_MS;
    this.#log = log;
    this.#table = db.table<Wanted>({
      name: 'nodeCondition',
      key: ({ node }) => node,
      equals: (a, b) => a.reason === b.reason && a.message === b.message && a.repeat === b.repeat,
    });
    this.#reconciler = apiReconciler<Wanted>({
      name: 'node-condition',
      what: 'node condition',
      connection,
      ending: this.#ending.signal,
      db,
      table: this.#table,
      operations: { update: (wanted) => this.#update(wanted), delete: () => undefined },
      roundsPerSecond: 1000 / intervalMs,
    });
  }

  start(): void {
    this.#timer = setInterval(() => this.#look(), this.#lookMs).unref();
    this.#reconciler.start();
  }

  /** Resolves when the request under way has ended. */
  async stop(): Promise<void> {
    clearInterval(this.#timer);
    this.#ending.abort(new Error('stopped'));
    await this.#reconciler.stop();
  }

  /** Stops, and takes the condition off the Node: nobody is left who would end it. Tried once. */
  async remove(): Promise<void> {
    await this.stop();
    try {
      if ((await this.#current()) !== undefined) await this.#apply([]);
    } catch (error) {
      this.#log.info({ error: messageOf(error) }, `cannot remove condition ${CONDITION} from the node`);
    }
  }

  #look(): void {
    const problems = this.#problems().toSorted((a, b) => rankOf(a) - rankOf(b));
    const [worst] = problems;
    const lasts = worst !== undefined && this.#foundBefore;
    this.#foundBefore = worst !== undefined;
    if (worst !== undefined && !lasts) return;
    const message = clipped(problems.map((problem) => problem.message).join('; '), LONGEST_MESSAGE);
    const reason = worst?.reason ?? '';
    const repeat = worst !== undefined || this.#mayNot ? Math.floor(performance.now() / this.#againMs) : 0;
    this.#db.write([this.#table], (txn) => txn.upsert(this.#table, { node: this.#nodeName, reason, message, repeat }));
  }

  async #update({ reason, message }: Wanted): Promise<void> {
    try {
      const current = await this.#current();
      const status = reason === '' ? 'False' : 'True';
      this.#mayNot = false;
      if (current === undefined && status === 'False') return;
      const wanted =
        status === 'True' ? { reason, message } : { reason: 'NoProblem', message: 'nothing is wrong any more' };
      if (current?.status === status && current.reason === wanted.reason && current.message === wanted.message) return;
      const now = new Date(Math.floor(Date.now() / 1000) * 1000).toISOString().replace('.000Z', 'Z');
      const since = current?.status === status ? current.lastTransitionTime : undefined;
      const lastTransitionTime = since ?? now;
      await this.#apply([{ type: CONDITION, status, ...wanted, lastHeartbeatTime: now, lastTransitionTime }]);
    } catch (error) {
      // A Node that is not there has no conditions.
      if (error instanceof ApiError && error.notFound) return;
      if (!(error instanceof ApiError && error.forbidden)) throw error;
      this.#mayNot = true;
      if (this.#saidSo) return;
      this.#saidSo = true;
      this.#log.info(
        { error: messageOf(error) },
        `cannot write condition ${CONDITION} of the node: the agent has no permission (helm value agent.boundToNode, Kubernetes 1.30 or newer)`,
      );
    }
  }

  async #current(): Promise<NodeCondition | undefined> {
    const { status } = await this.#client.get(resources.KubeNode, this.#nodeName);
    return status?.conditions?.find(({ type }) => type === CONDITION);
  }

  async #apply(conditions: readonly NodeCondition[]): Promise<void> {
    const object: KubeNode = {
      apiVersion: 'v1',
      kind: 'Node',
      metadata: { name: this.#nodeName },
      status: { conditions },
    };
    await this.#client.apply(resources.KubeNode, object, {
      fieldManager: FIELD_MANAGER,
      force: true,
      subresource: 'status',
    });
  }
}

function rankOf({ reason }: NodeProblem): number {
  const rank = WORST_FIRST.indexOf(reason);
  return rank < 0 ? WORST_FIRST.length : rank;
}
