/** The reconcilers from desired tables to the API: one for each kind that parts bring. */
import type { KubeClient } from '@weir/kube';
import type { Reconciler, ReconcilerOptions } from '@weir/reconciler';
import type { AnyTable, StateDB } from '@weir/statedb';
import type { Subscription } from 'rxjs';
import type { DesiredKind } from '../parts/contract.ts';
import { Writer } from './writer.ts';

export interface WritersOptions {
  readonly client: Pick<KubeClient, 'pulse'>;
  readonly db: StateDB;
  readonly kinds: readonly DesiredKind<never>[];
  /** Default: the machine's clock, and random delays of retries. */
  readonly timing?: Pick<ReconcilerOptions<unknown>, 'clock' | 'random' | 'stopGraceMs'>;
  /** `failingMs`: milliseconds since the first attempt that failed, with none since that succeeded. */
  readonly onError: (writer: string, key: string, error: Error, retries: number, failingMs: number) => void;
}

export class Writers {
  readonly #options: WritersOptions;
  readonly #all: readonly Writer<never>[];
  #recoveries: Subscription | undefined;

  constructor(options: WritersOptions) {
    this.#options = options;
    const { kinds, db, timing, onError } = options;
    this.#all = kinds.map((kind) => new Writer({ kind, db, timing, onError }));
  }

  get reconcilers(): readonly Pick<Reconciler<unknown>, 'name' | 'metrics'>[] {
    return this.#all.map(({ reconciler }) => reconciler);
  }

  start(): void {
    for (const { reconciler } of this.#all) reconciler.start();
    this.#recoveries = this.#options.client.pulse?.recoveries.subscribe(() => {
      for (const { reconciler } of this.#all) reconciler.retry();
    });
  }

  /** Finishes the requests that have been made. */
  async stop(): Promise<void> {
    this.#recoveries?.unsubscribe();
    await Promise.all(this.#all.map((writer) => writer.stop()));
  }

  /** Waits until these rows of a desired table, as far as they are desired, have been attempted: in the turns of this owner, too. */
  async attempted(table: AnyTable, keys: readonly string[], owner: string): Promise<void> {
    await this.#all.find((writer) => writer.table === table)?.attempted(keys, owner);
  }

  /** Waits until everything desired now has been attempted; the writers that still fail, with how many rows. */
  async settled(signal?: AbortSignal): Promise<ReadonlyMap<string, number>> {
    const failing = new Map<string, number>();
    for (const writer of this.#all) {
      const rows = await writer.settled(signal);
      if (rows > 0) failing.set(writer.reconciler.name, rows);
    }
    return failing;
  }

  /** Rows that the API server has not acknowledged, by writer. */
  failing(): ReadonlyMap<string, number> {
    return new Map(this.#all.map(({ reconciler }) => [reconciler.name, reconciler.failing().length]));
  }
}
