/** What the operator is given, and what it offers. */
import type { FencingClient, KubeClient } from '@weir/kube';
import type { StateDB } from '@weir/statedb';
import type { Logger } from 'pino';
import type { Limits } from './limits.ts';
import type { Metrics } from './metrics.ts';

export interface OperatorOptions {
  readonly client: KubeClient & FencingClient;
  readonly logger: Logger;
  /** Name of the local cluster, part of every identity. Default `default`. */
  readonly clusterName?: string;
  /** Milliseconds an unused identity is kept. Default 30 minutes. */
  readonly identityGraceMs?: number;
  /** Milliseconds between collections of unused identities. Default 15 minutes. */
  readonly identityGcIntervalMs?: number;
  /** What one tenant may use. Default, of each: DEFAULT_LIMITS. */
  readonly limits?: Partial<Limits>;
  /** Where Weir is installed. Default `kube-system`. */
  readonly namespace?: string;
  /** Absent: this process leads at once. */
  readonly leaderElection?: {
    readonly namespace: string;
    readonly name: string;
    readonly identity: string;
    readonly leaseDurationMs?: number;
    readonly renewDeadlineMs?: number;
    readonly retryPeriodMs?: number;
    /** Milliseconds of a clock that never goes back. */
    readonly now?: () => number;
  };
  /** `host:port` for probes, and for metrics unless `metrics` is given; absent: none. */
  readonly healthAddress?: string;
  /** Metrics by TLS, for who may `get` the URL /metrics: `host:port`, and the folder of tls.crt and tls.key. */
  readonly metrics?: { readonly address: string; readonly certificates: string };
  /** Milliseconds that objects of nodes and pods that are gone are kept, and between looks for them. Default 5 minutes. */
  readonly orphanGraceMs?: number;
  /** Milliseconds between two looks at a cluster that is refused. Default 10 seconds. */
  readonly preflightRetryMs?: number;
  /** Milliseconds for which a kind may not be followed before the operator says that it is not ready. Default 60 seconds. */
  readonly staleMs?: number;
  /** Called when the operator cannot go on: the process must end. Lost leadership is none: the operator stands by again. */
  readonly onFatal?: (error: Error) => void;
  /** Milliseconds between two writes of one policy's status; the first change after a while is written at once. Default 1000. */
  readonly statusIntervalMs?: number;
  /** Milliseconds since the epoch. Default Date.now. */
  readonly now?: () => number;
}

export interface Operator {
  /** Preflight, tried again for as long as it refuses; then leader election (when asked for), then the work. Resolves once it runs. */
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
  /** Of metrics by TLS; undefined while nobody is listened to. */
  readonly metricsPort: number | undefined;
  /** Of this term: another one after leadership was lost. */
  readonly db: StateDB;
  readonly metrics: Metrics;
}
