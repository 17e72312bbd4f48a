/** What the operator is given, and what it offers. */
import type { FencingClient, KubeClient } from '@weir/kube';
import type { StateDB } from '@weir/statedb';
import type { Logger } from 'pino';
import type { Registry } from 'prom-client';
import type { OperatorConfig } from './part-list.ts';
import type { AnyOperatorPart } from './parts/contract.ts';

export interface OperatorOptions {
  readonly client: KubeClient & FencingClient;
  readonly logger: Logger;
  /** Default, of each: the flag's, or the part's setting. */
  readonly config?: Partial<OperatorConfig>;
  /** Default: OPERATOR_PARTS. */
  readonly parts?: readonly AnyOperatorPart[];
  /** Called when the operator cannot go on: the process must end. Lost leadership is none: the operator stands by again. */
  readonly onFatal?: (error: Error) => void;
}

export interface Operator {
  /** Preflight, tried again for as long as it refuses; then leader election (when asked for), then the work. Resolves once it runs, or is stopped. */
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
  readonly registry: Registry;
}
