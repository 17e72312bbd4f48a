/** The operator, assembled. */
import {
  Backoff,
  createReflector,
  delay,
  type KubeClient,
  type KubeObject,
  LeaderElector,
  type Reflector,
  type ReflectorSink,
  type Resource,
  resources,
} from '@weir/kube';
import { createStateDB, type StateDB, type Table } from '@weir/statedb';
import type { Logger } from 'pino';
import { Engine } from './engine.ts';
import { DependencyError, PreflightError } from './errors.ts';
import { GarbageCollector } from './garbage.ts';
import { HealthServer } from './health.ts';
import { Metrics } from './metrics.ts';
import { Model } from './model.ts';
import { preflight } from './preflight.ts';
import { fanOut, tableSink } from './reflect.ts';
import { namespaceRow, nodeReportRow, nodeRow, podRow, policyRow } from './rows.ts';
import { createTables, type Desired, type Tables } from './tables.ts';
import { adopted, createTargets, type TargetName, type Targets } from './targets.ts';
import type { PolicyObjectKind } from './types.ts';
import { Writers } from './writers.ts';

export interface OperatorOptions {
  readonly client: KubeClient;
  readonly logger: Logger;
  /** Name of the local cluster, part of every identity. Default `default`. */
  readonly clusterName?: string;
  /** Milliseconds an unused identity is kept. Default 30 minutes. */
  readonly identityGraceMs?: number;
  /** Milliseconds between collections of unused identities. Default 15 minutes. */
  readonly identityGcIntervalMs?: number;
  /** Absent: this process leads at once. */
  readonly leaderElection?: {
    readonly namespace: string;
    readonly name: string;
    readonly identity: string;
    readonly leaseDurationMs?: number;
    readonly renewDeadlineMs?: number;
    readonly retryPeriodMs?: number;
  };
  /** `host:port` for probes and metrics; absent: none. */
  readonly healthAddress?: string;
  /** Milliseconds that objects of nodes and pods that are gone are kept, and between looks for them. Default 5 minutes. */
  readonly orphanGraceMs?: number;
  /** Called when the operator cannot go on: the process must end. */
  readonly onFatal?: (error: Error) => void;
  /**
   * Milliseconds between two writes of one policy's status that differ in counts only (more nodes have followed). The
   * first change after a while, and what says something new, is written at once. Default 250.
   */
  readonly statusIntervalMs?: number;
  /** Milliseconds since the epoch. Default Date.now. */
  readonly now?: () => number;
}

export interface Operator {
  /** Preflight, then leader election (when asked for), then the work. Throws PreflightError. Resolves once it runs. */
  start(): Promise<void>;
  /** Finishes what is being written, releases the lease, closes everything. */
  stop(): Promise<void>;
  /** Resolves when the first state has been derived. */
  ready(): Promise<void>;
  /**
   * Waits until everything that the operator has seen is derived and has been tried to write. Returns the writers that
   * still fail, with how many rows: empty when all is written.
   */
  settled(signal?: AbortSignal): Promise<ReadonlyMap<string, number>>;
  readonly leading: boolean;
  readonly healthPort: number | undefined;
  readonly db: StateDB;
  readonly metrics: Metrics;
}

/** Nothing happens before start(). An operator that was stopped is not started again: make a new one. */
export function createOperator(options: OperatorOptions): Operator {
  return new Assembly(options);
}

class Assembly implements Operator {
  readonly db: StateDB = createStateDB();
  readonly metrics: Metrics;
  readonly #options: OperatorOptions;
  readonly #log: Logger;
  readonly #tables: Tables;
  readonly #targets: Targets;
  readonly #engine: Engine;
  readonly #writers: Writers;
  readonly #garbage: GarbageCollector;
  readonly #reflectors: Reflector[] = [];
  readonly #elector: LeaderElector | undefined;
  readonly #health: HealthServer | undefined;
  readonly #stop = new AbortController();
  readonly #synced = new Set<string>();
  #fatal: Error | undefined;
  #working = false;
  #healthPort: number | undefined;

  constructor(options: OperatorOptions) {
    this.#options = options;
    this.#log = options.logger;
    this.#tables = createTables(this.db);
    const count = (table: Table<never>) => (): number => {
      using snapshot = this.db.read();
      return snapshot.count(table);
    };
    const gauge = (help: string, table: unknown) => ({ help, read: count(table as Table<never>) });
    this.metrics = new Metrics({
      policies: gauge('Policies in the cluster.', this.#tables.policies),
      identities: gauge('Identities, unused ones included.', this.#tables.identities),
      peer_set_slices: gauge('Slices of peer sets.', this.#tables.peerSets),
      endpoint_slices: gauge('Endpoint slices.', this.#tables.slices),
      leading: { help: '1 when this process leads.', read: () => (this.leading ? 1 : 0) },
    });
    this.#targets = createTargets({
      client: options.client,
      onDrift: (target, key) => this.#drift(target, key),
      onWrite: (verb, resource) => this.metrics.write(verb, resource),
    });
    this.#engine = new Engine({
      db: this.db,
      tables: this.#tables,
      model: new Model({
        cluster: options.clusterName ?? 'default',
        identityGraceMs: options.identityGraceMs ?? 30 * 60_000,
        now: options.now ?? Date.now,
        statusIntervalMs: options.statusIntervalMs ?? 250,
        onNoIdentity: (pod, error) => {
          this.metrics.error('identity');
          this.#log.error({ pod, err: error }, 'pod has no identity');
        },
      }),
      adopted: () => adopted(this.#targets),
      collectIntervalMs: options.identityGcIntervalMs ?? 15 * 60_000,
      onError: (error) => this.#fail(error),
    });
    this.#writers = new Writers({
      db: this.db,
      tables: this.#tables,
      targets: this.#targets,
      onError: (writer, key, error, retries) => this.#writeFailed(writer, key, error, retries),
    });
    const orphanGraceMs = options.orphanGraceMs ?? 5 * 60_000;
    this.#garbage = new GarbageCollector({
      client: options.client,
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
        this.#log.warn({ err: error }, 'could not remove what has no owner');
      },
    });
    this.#elector = options.leaderElection === undefined ? undefined : this.#createElector(options.leaderElection);
    this.#health =
      options.healthAddress === undefined
        ? undefined
        : new HealthServer({
            address: options.healthAddress,
            metrics: this.metrics,
            unhealthy: () => this.#fatal?.message,
            unready: () => this.#unready(),
          });
  }

  get leading(): boolean {
    return this.#working && (this.#elector?.leading ?? true);
  }

  get healthPort(): number | undefined {
    return this.#healthPort;
  }

  async start(): Promise<void> {
    this.#healthPort = await this.#health?.start();
    await this.#preflight();
    if (this.#stop.signal.aborted) return;
    if (this.#elector === undefined) this.#work();
    else this.#elector.start();
  }

  async stop(): Promise<void> {
    this.#stop.abort();
    await Promise.all(this.#reflectors.map((reflector) => reflector.stop()));
    await this.#garbage.stop();
    await this.#engine.stop();
    await this.#writers.stop();
    // Last: while the lease is ours nobody else writes.
    await this.#elector?.stop();
    await this.#health?.stop();
  }

  async ready(): Promise<void> {
    await this.db.initialisedWatch(this.#tables.statuses).wait(this.#stop.signal);
  }

  async settled(signal?: AbortSignal): Promise<ReadonlyMap<string, number>> {
    await this.#engine.calm();
    return this.#writers.attempted(signal);
  }

  async #preflight(): Promise<void> {
    const backoff = new Backoff({ minMs: 500, maxMs: 15_000 });
    while (!this.#stop.signal.aborted) {
      try {
        await preflight(this.#options.client);
        return;
      } catch (error) {
        if (error instanceof PreflightError) throw error;
        const retryInMs = backoff.next();
        this.metrics.error('preflight');
        this.#log.warn({ err: error, retryInMs }, 'preflight could not ask the API server');
        await delay(retryInMs, this.#stop.signal);
      }
    }
  }

  #createElector(election: NonNullable<OperatorOptions['leaderElection']>): LeaderElector {
    return new LeaderElector({
      ...election,
      client: this.#options.client,
      onElected: () => {
        this.#log.info({ lease: election.name, identity: election.identity }, 'leading');
        this.#work();
      },
      onLost: (error) => this.#fail(error),
      onLeader: (leader) => this.#log.info({ leader }, 'leader seen'),
      onError: (error) => {
        this.metrics.error('leader-election');
        this.#log.warn({ err: error }, 'leader election failed to reach the lease');
      },
    });
  }

  #work(): void {
    if (this.#working || this.#stop.signal.aborted) return;
    this.#working = true;
    const { db } = this;
    const tables = this.#tables;
    const outputs: Promise<void>[] = [];
    const reflect = <T extends KubeObject>(resource: Resource<T>, sink: ReflectorSink<T>): Promise<void> => {
      const synced = Promise.withResolvers<void>();
      const reflector = createReflector({
        client: this.#options.client,
        resource,
        sink: {
          replace: (items, version) => sink.replace(items, version),
          upsert: (item) => sink.upsert(item),
          delete: (item) => sink.delete(item),
          synced: () => {
            this.#synced.add(resource.plural);
            synced.resolve();
          },
        },
        onError: (error, context) => {
          this.metrics.error('reflector');
          this.#log.warn({ err: error, ...context }, 'watch failed');
        },
      });
      this.#reflectors.push(reflector);
      reflector.start();
      return synced.promise;
    };
    const policies = (kind: PolicyObjectKind): Promise<void> =>
      reflect(
        resources[kind],
        fanOut(
          // First the status that is known, then the row that may make a new one.
          this.#targets.statuses[kind],
          tableSink(
            db,
            tables.policies,
            kind,
            (object) => policyRow(object, kind),
            (row) => row.kind === kind,
          ),
        ),
      );
    outputs.push(
      reflect(resources.CiliumIdentity, this.#targets.identities),
      reflect(resources.PeerSet, this.#targets.peerSets),
      reflect(resources.ResolvedPolicy, this.#targets.resolved),
      reflect(resources.CiliumEndpointSlice, this.#targets.slices),
      policies('CiliumNetworkPolicy'),
      policies('CiliumClusterwideNetworkPolicy'),
      reflect(resources.Namespace, tableSink(db, tables.namespaces, 'namespaces', namespaceRow)),
      reflect(resources.Pod, tableSink(db, tables.pods, 'pods', podRow)),
      reflect(resources.KubeNode, tableSink(db, tables.nodes, 'nodes', nodeRow)),
      reflect(resources.NodePolicyStatus, tableSink(db, tables.reports, 'reports', nodeReportRow)),
    );
    Promise.all(outputs).then(
      () => {
        if (this.#stop.signal.aborted) return;
        this.#engine.start();
        this.#writers.start();
        this.#garbage.start();
        this.#log.info('inputs complete');
      },
      (error: unknown) => this.#fail(error instanceof Error ? error : new Error(String(error))),
    );
  }

  #drift(target: TargetName, key: string): void {
    if (!this.#engine.started) return;
    const table: Record<TargetName, Table<never>> = {
      identities: this.#tables.identities,
      peerSets: this.#tables.peerSets,
      resolved: this.#tables.resolved,
      slices: this.#tables.slices,
      statuses: this.#tables.statuses,
    } as unknown as Record<TargetName, Table<never>>;
    this.#engine.touch(table[target] as unknown as Table<Desired<unknown>>, key);
  }

  #writeFailed(writer: string, key: string, error: Error, retries: number): void {
    // Waiting for another object is the normal order of things, unless it lasts.
    if (error instanceof DependencyError && retries < 5) {
      this.#log.debug({ writer, key, reason: error.message, retries }, 'write waits');
      return;
    }
    this.metrics.error(writer);
    this.#log.warn({ writer, key, err: error, retries }, 'write failed');
  }

  #unready(): string | undefined {
    if (this.#fatal !== undefined) return this.#fatal.message;
    // A replica that waits for the lease does its whole work.
    if (this.#elector !== undefined && !this.#working) return undefined;
    if (!this.#working) return 'preflight is not over';
    return this.#engine.started ? undefined : `inputs are not complete: ${[...this.#synced].join(', ') || 'none yet'}`;
  }

  #fail(error: Error): void {
    this.#fatal = error;
    this.#log.fatal({ err: error }, 'operator cannot go on');
    this.#options.onFatal?.(error);
  }
}
