/** The operator's parts, put together for one term: from standing by until leadership is lost, or the process ends. */
import { type KubeClient, KubeError, LeaderElector, LeadershipLostError, type Outage } from '@weir/kube';
import { delay } from '@weir/process/delay';
import { messageOf } from '@weir/process/errors';
import { Backoff } from '@weir/reconciler/backoff';
import { registerMetrics as registerWriterMetrics } from '@weir/reconciler/prometheus';
import { createStateDB, type Reader, type StateDB, type Table } from '@weir/statedb';
import { registerMetrics as registerStateMetrics } from '@weir/statedb/prometheus';
import type { Logger } from 'pino';
import type { OperatorOptions } from './contract.ts';
import { OperatorError, PreflightError } from './errors.ts';
import { GarbageCollector } from './kubernetes/garbage.ts';
import { Inputs } from './kubernetes/inputs.ts';
import { adopted, createTargets, type TargetName, type Targets } from './kubernetes/targets.ts';
import { isOrdinaryWait } from './kubernetes/waits.ts';
import { Writers } from './kubernetes/writers.ts';
import { DEFAULT_LIMITS } from './limits.ts';
import { Metrics, type Totals } from './metrics.ts';
import { Engine } from './model/engine.ts';
import { IDENTITIES } from './model/identity-book.ts';
import { Model } from './model/model.ts';
import { preflight } from './preflight.ts';
import { createTables, type Desired, type Tables } from './tables.ts';
import { TenantLog } from './tenant-log.ts';
import type { PolicyObjectKind } from './types.ts';

export interface AssemblyOptions extends OperatorOptions {
  /** Counts over all terms. */
  readonly totals: Totals;
  /** What was told of the API server, over all terms. */
  readonly outage: Outage;
  /** Whether the cluster is one that Weir may run in is known already. */
  readonly admitted: boolean;
  /** Leadership is lost: nothing is written any more. Stop this assembly, and make another that competes for the lease. */
  readonly onLost: () => void;
}

/** API servers that restart take less; a rule that is not seen for longer is worth a page. */
const STALE_MS = 60_000;
/** Who removes Cilium or installs a CRD waits no longer than this. */
const PREFLIGHT_RETRY_MS = 10_000;

/** Nothing happens before start(). An assembly that was stopped is not started again: make a new one. */
export class Assembly {
  readonly db: StateDB = createStateDB();
  readonly metrics: Metrics;
  readonly #options: AssemblyOptions;
  readonly #log: Logger;
  readonly #tenantLog: TenantLog;
  readonly #tables: Tables;
  readonly #targets: Targets;
  readonly #model: Model;
  readonly #engine: Engine;
  readonly #writers: Writers;
  readonly #garbage: GarbageCollector;
  readonly #inputs: Inputs;
  readonly #elector: LeaderElector | undefined;
  readonly #stop = new AbortController();
  #fatal: Error | undefined;
  #working = false;
  /** Why preflight has not let it in; undefined: it has. */
  #refused: string | undefined;

  constructor(options: AssemblyOptions) {
    this.#options = options;
    this.#log = options.logger;
    this.#tenantLog = new TenantLog(options.logger);
    this.#refused = options.admitted ? undefined : 'preflight is not over';
    this.#tables = createTables(this.db);
    this.metrics = this.#createMetrics();
    this.#elector = options.leaderElection === undefined ? undefined : this.#createElector(options.leaderElection);
    const client = this.#elector === undefined ? options.client : options.client.fenced(this.#elector.fence);
    this.#targets = createTargets({
      db: this.db,
      client,
      onDrift: (target, key) => this.#drift(target, key),
      onWrite: (verb, resource) => this.metrics.write(verb, resource),
    });
    this.#inputs = new Inputs({
      client,
      db: this.db,
      tables: this.#tables,
      targets: this.#targets,
      onError: (error, context) => {
        this.metrics.error('reflector');
        this.#apiFailed(context, error, 'watch failed', `watch failed ${context.resource}`);
      },
      onBad: (kind, object, error) => {
        this.metrics.error('object');
        this.#tenantLog.objectUnreadable(kind, object, error);
      },
      onMissing: (kind, because) => this.#kindMissing(kind, because),
    });
    const model = this.#createModel();
    this.#model = model;
    this.#engine = new Engine({
      db: this.db,
      tables: this.#tables,
      model,
      adopted: () => adopted(this.#targets),
      missingKinds: () => this.#inputs.missing,
      collectIntervalMs: options.identityGcIntervalMs ?? 15 * 60_000,
      onError: (error) => this.#fail(error),
    });
    this.#writers = new Writers({
      client,
      db: this.db,
      tables: this.#tables,
      targets: this.#targets,
      onWrite: (verb, resource) => this.metrics.write(verb, resource),
      onStatus: (key) => model.statusWritten(key),
      onError: (writer, key, error, retries, failingMs) =>
        this.#writeFailed(writer, key, error, { retries, failingMs }),
    });
    registerStateMetrics(this.db, this.metrics.registry, 'weir_operator_statedb');
    registerWriterMetrics(() => this.#writers.reconcilers, this.metrics.registry, 'weir_operator_writer');
    this.#garbage = this.#createGarbageCollector(client);
  }

  get leading(): boolean {
    return this.#working && (this.#elector?.leading ?? true);
  }

  /** Preflight, tried again for as long as it refuses; then leader election (when asked for), then the work. Resolves once it runs. */
  async start(): Promise<void> {
    if (!this.#options.admitted) await this.#preflight();
    if (this.#stop.signal.aborted) return;
    if (this.#elector === undefined) this.#work();
    else this.#elector.start();
  }

  /** Finishes what is being written, as long as it leads, and releases the lease. */
  async stop(): Promise<void> {
    this.#stop.abort();
    await this.#inputs.stop();
    await this.#garbage.stop();
    await this.#engine.stop();
    this.#tenantLog.stop();
    await this.#writers.stop();
    // Last: while the lease is ours nobody else writes.
    await this.#elector?.stop();
  }

  async ready(): Promise<void> {
    await this.db.initialisedWatch(this.#tables.statuses).wait(this.#stop.signal);
  }

  async settled(signal?: AbortSignal): Promise<ReadonlyMap<string, number>> {
    await this.#engine.calm();
    return this.#writers.attempted(signal);
  }

  async #preflight(): Promise<void> {
    const { client, namespace = 'kube-system', preflightRetryMs = PREFLIGHT_RETRY_MS } = this.#options;
    const backoff = new Backoff({ minMs: 500, maxMs: 5_000 });
    while (!this.#stop.signal.aborted) {
      try {
        const lease = this.#options.leaderElection?.name;
        for (const warning of await preflight(client, { namespace, lease }))
          this.#log.warn({ warning }, 'something looks like Cilium here');
        this.#options.outage.answered();
        this.#refused = undefined;
        return;
      } catch (error) {
        this.metrics.error('preflight');
        if (error instanceof PreflightError) {
          if (this.#refused !== error.message)
            this.#log.error(
              { error: error.message, retryInMs: preflightRetryMs },
              'the operator cannot work in this cluster yet',
            );
          this.#refused = error.message;
          await delay(preflightRetryMs, this.#stop.signal);
          continue;
        }
        const retryInMs = backoff.next();
        const what = 'preflight could not ask the API server';
        this.#apiFailed({ retryInMs }, error, what);
        this.#refused = `${what}: ${messageOf(error)}`;
        await delay(retryInMs, this.#stop.signal);
      }
    }
  }

  #createMetrics(): Metrics {
    const gauge = (help: string, table: unknown): { readonly help: string; readonly read: () => number } => ({
      help,
      read: () => {
        using snapshot = this.db.read();
        return snapshot.count(table as Table<never>);
      },
    });
    const model = (
      help: string,
      read: (reader: Reader) => number,
    ): { readonly help: string; readonly read: () => number } => ({
      help,
      read: () => {
        using snapshot = this.db.read();
        return read(snapshot);
      },
    });
    return new Metrics(this.#options.totals, {
      policies: gauge('Policies in the cluster.', this.#tables.policies),
      identities: gauge('Identities, unused ones included.', this.#tables.identities),
      identities_unused: model('Identities that no pod has.', (reader) => this.#model.identityUse(reader).unused),
      identities_capacity: { help: 'Identities that there can be.', read: () => IDENTITIES },
      identity_quotas_reached: model(
        'Namespaces that have as many identities as they may, unused ones included.',
        (reader) => this.#model.identityUse(reader).atQuota,
      ),
      policies_over_budget: model('Policies whose current version needs more than it may.', (reader) =>
        this.#model.overBudget(reader),
      ),
      pods_waiting_for_identity: model('Pods that no identity is left for.', (reader) =>
        this.#model.waitingPods(reader),
      ),
      peer_set_slices: gauge('Slices of peer sets.', this.#tables.peerSets),
      endpoint_slices: gauge('Endpoint slices.', this.#tables.slices),
      leading: { help: '1 when this process leads.', read: () => (this.leading ? 1 : 0) },
    });
  }

  #createModel(): Model {
    const options = this.#options;
    const limits = { ...DEFAULT_LIMITS, ...options.limits };
    return new Model({
      db: this.db,
      tables: this.#tables,
      cluster: options.clusterName ?? 'default',
      identityGraceMs: options.identityGraceMs ?? 30 * 60_000,
      identitiesPerNamespace: limits.identitiesPerNamespace,
      mirrorIdentitiesPerNodeAndNamespace: limits.mirrorIdentitiesPerNodeAndNamespace,
      mirrorIdentitiesPerNode: limits.mirrorIdentitiesPerNode,
      policyLimits: limits,
      now: options.now ?? Date.now,
      statusIntervalMs: options.statusIntervalMs ?? 1_000,
      onNoIdentity: (namespace, pod, error) => {
        this.metrics.error('identity');
        this.#log.error(
          { namespace, pod, error: error.message },
          'pods of a namespace wait for an identity: until then nobody knows them, and no policy lets them in',
        );
      },
      onPodCidrOverlap: (overlap) => {
        this.metrics.error('address');
        this.#log.warn(
          { ...overlap },
          'pod CIDRs of nodes overlap: the oldest node has what they share; delete the one that is wrong, and see who registered it',
        );
      },
      onAddressRefused: (refused) => {
        this.metrics.error('address');
        this.#tenantLog.addressRefused(refused);
      },
    });
  }

  #createGarbageCollector(client: KubeClient): GarbageCollector {
    const options = this.#options;
    const orphanGraceMs = options.orphanGraceMs ?? 5 * 60_000;
    return new GarbageCollector({
      db: this.db,
      client,
      hasPod: (namespace, name) => {
        using snapshot = this.db.read();
        return snapshot.has(this.#tables.pods, `${namespace}/${name}`);
      },
      graceMs: orphanGraceMs,
      intervalMs: orphanGraceMs,
      now: options.now ?? Date.now,
      onDeleted: (resource, key) => {
        this.metrics.write('delete', resource);
        this.#log.info({ resource, key }, 'removed: its owner is gone');
      },
      onError: (error) => {
        this.metrics.error('garbage');
        this.#apiFailed({}, error, 'could not remove what has no owner');
      },
    });
  }

  #createElector(election: NonNullable<OperatorOptions['leaderElection']>): LeaderElector {
    return new LeaderElector({
      ...election,
      client: this.#options.client,
      onElected: () => {
        this.#log.info({ lease: election.name, identity: election.identity }, 'leading');
        this.#work();
      },
      onLost: (error) => {
        this.#log.warn({ error: error.message }, 'leadership lost: nothing is written until this replica leads again');
        this.#options.onLost();
      },
      onLeader: (leader) => this.#log.info({ leader }, 'leader seen'),
      onError: (error) => {
        this.metrics.error('leader-election');
        const message = 'leader election failed to reach the lease';
        // While there is time for another try nobody need do anything.
        if (this.#elector?.unreached === undefined) this.#log.debug({ error: error.message }, message);
        else this.#apiFailed({}, error, message);
      },
    });
  }

  #work(): void {
    if (this.#working || this.#stop.signal.aborted) return;
    this.#working = true;
    this.#startWork().catch((error: unknown) => {
      if (!this.#stop.signal.aborted) this.#fail(error instanceof Error ? error : new Error(String(error)));
    });
  }

  async #startWork(): Promise<void> {
    await this.#inputs.start();
    if (this.#stop.signal.aborted) return;
    this.#engine.start();
    this.#garbage.start();
    this.#log.info('inputs complete');
    // Until the first state is complete, what is desired is a part of it.
    await this.ready();
    this.#writers.start();
  }

  #kindMissing(kind: PolicyObjectKind, because: string | undefined): void {
    if (because === undefined) {
      this.#log.info({ kind }, 'policies of this kind can be read again');
      this.#engine.poke();
      return;
    }
    this.metrics.error('reflector');
    this.#log.error(
      { kind, because },
      'policies of this kind cannot be read: what is enforced of them stays as it is, the others are served; grant the operator get, list and watch on them',
    );
  }

  #drift(target: TargetName, key: string): void {
    if (!this.#engine.started) return;
    if (target === 'statuses') {
      this.#engine.touchStatus(key);
      return;
    }
    const { identities, peerSets, resolved, slices } = this.#tables;
    const tables = { identities, peerSets, resolved, slices };
    this.#engine.touch(tables[target] as unknown as Table<Desired<unknown>>, key);
  }

  #writeFailed(
    writer: string,
    key: string,
    error: Error,
    how: { readonly retries: number; readonly failingMs: number },
  ): void {
    if (isOrdinaryWait(error, how.failingMs)) {
      this.#log.debug({ writer, key, reason: error.message, ...how }, 'write waits');
      return;
    }
    this.metrics.error(writer);
    this.#apiFailed({ writer, key, ...how }, error, 'write failed', `write failed ${writer}`);
  }

  /** Told once a minute for each kind of requests: most are tried again. @param kind what is told apart; default: the message */
  #apiFailed(fields: object, error: unknown, message: string, kind = message): void {
    // What was under way when leadership was lost ends with it.
    if (error instanceof LeadershipLostError) return;
    const { loud, ...fix } = this.#options.outage.failed(kind, error);
    // The stack of what the API server says is our client's, and the same every time.
    const said =
      error instanceof KubeError || error instanceof OperatorError ? { error: error.message } : { err: error };
    this.#log[loud ? 'warn' : 'debug']({ ...fields, ...said, ...fix }, message);
  }

  /** Why the process must be restarted; undefined: it is well. */
  get unhealthy(): string | undefined {
    return this.#fatal?.message;
  }

  /** Why it does not do its work yet; undefined: it does. */
  get unready(): string | undefined {
    if (this.#fatal !== undefined) return this.#fatal.message;
    if (this.#refused !== undefined) return this.#refused;
    // A replica that waits for the lease does its whole work while it could take it.
    if (this.#elector !== undefined && !this.#elector.leading) return this.#elector.unreached;
    if (this.#engine.started) {
      const stale = this.#inputs.stale(this.#options.staleMs ?? STALE_MS);
      return stale.length === 0 ? undefined : `what it goes by is old: ${stale.join(', ')}`;
    }
    const waiting = this.#inputs.waiting();
    return waiting.length === 0 ? 'the first state is being derived' : `waiting for ${waiting.join(', ')}`;
  }

  #fail(error: Error): void {
    this.#fatal = error;
    this.#log.fatal({ err: error }, 'operator cannot go on');
    this.#options.onFatal?.(error);
  }
}
