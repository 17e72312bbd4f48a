/** The rows that are driven into the kernel: slots, addresses, endpoints' words. In which order they go there is the plan writer's. */
import { isLocalCidr } from '@weir/identity';
import { createReconciler, type Reconciler, systemClock } from '@weir/reconciler';
import type { StateDB } from '@weir/statedb';
import type { Logger, Tables } from '../core.ts';
import { tableKey } from '../create-tables.ts';
import { DIRECTIONS } from '../derive/contract.ts';
import { InterfaceGoneError, OrderError } from '../errors.ts';
import type { EndpointStateRow, IpcacheRow, SlotContent, SlotRow } from '../tables.ts';
import type { KernelStores } from './kernel-stores.ts';
import type { Planner } from './planner.ts';

/** Retries of a row from one line of the log to the next: about half a minute. */
const TELL_EVERY = 20;

export interface KernelRowsOptions {
  readonly db: StateDB;
  readonly tables: Pick<Tables, 'slots' | 'ipcache' | 'endpointStates' | 'kernelReconcilers' | 'kernelFailures'>;
  readonly model: Pick<Planner, 'addressed'>;
  readonly kernel: Pick<KernelStores, 'slots' | 'ipcache' | 'endpoints'>;
  /** Nothing wants the slot any more. */
  readonly retire: (slot: number) => void;
  /** Whether an endpoint was not removed, and only lost its interface. */
  readonly isKept: (endpoint: number) => boolean;
  /** A word is about to be written. */
  readonly moving: () => void;
  readonly log: Logger;
}

export class KernelRows {
  readonly slots: Reconciler<SlotRow>;
  readonly ipcache: Reconciler<IpcacheRow>;
  readonly endpoints: Reconciler<EndpointStateRow>;

  constructor(options: KernelRowsOptions) {
    const { db, tables, model, kernel, retire, isKept, moving, log } = options;
    const { slots, ipcache, endpoints } = kernel;
    const report = { db, health: tables.kernelReconcilers, failures: tables.kernelFailures };
    const retry = { db, report, minBackoffMs: 50, maxBackoffMs: 2000 };
    const onError =
      (what: string, key: (row: never) => object) =>
      (row: unknown, error: Error, retries: number): void => {
        // A pod that goes loses its interface before its endpoint: only one that stays is logged.
        const loud = retries % TELL_EVERY === 0 && !(retries === 0 && error instanceof InterfaceGoneError);
        const fields = { ...key(row as never), error: error.message, retries };
        log[loud ? 'error' : 'debug'](fields, `the kernel does not have the ${what}`);
      };
    const givenTogether = (rows: readonly IpcacheRow[]): boolean => {
      try {
        ipcache.updateAll(rows);
        return true;
      } catch {
        return false; // one by one they say why
      }
    };
    this.slots = createReconciler<SlotRow>({
      ...retry,
      name: 'kernel-slots',
      table: tables.slots,
      operations: {
        // A CIDR identity on its way out is decided by the new rules like every other address outside.
        update: (row) => slots.apply(row, (identity) => model.addressed(identity) || isLocalCidr(identity)),
        delete: (row) => retire(row.slot),
      },
      onError: onError('policy slot', (row: SlotRow) => ({ slot: row.slot })),
    });
    this.ipcache = createReconciler<IpcacheRow>({
      ...retry,
      name: 'kernel-ipcache',
      table: tables.ipcache,
      operations: {
        update: (row) => ipcache.updateAll([row]),
        delete: (row) => {
          ipcache.delete(row.prefix);
        },
        updateBatch: (batch) => {
          if (givenTogether(batch.map(({ row }) => row))) return;
          // Some of them may be there: each by itself, to tell them from those that are refused.
          for (const item of batch) {
            try {
              ipcache.updateAll([item.row]);
            } catch (error) {
              item.fail(error);
            }
          }
        },
      },
      onError: onError('address', (row: IpcacheRow) => ({ prefix: row.prefix })),
    });
    this.endpoints = createReconciler<EndpointStateRow>({
      ...retry,
      name: 'kernel-endpoints',
      table: tables.endpointStates,
      operations: {
        update: (row) => {
          moving();
          this.#checkCidrs(row, slots.content(row.slot), endpoints.word(row.id)?.slot);
          endpoints.update(row);
        },
        delete: ({ id }) => endpoints.delete(id, { everywhere: !isKept(id) }),
      },
      onError: onError('endpoint', (row: EndpointStateRow) => ({ endpoint: row.id })),
    });
  }

  /**
   * Addresses of a CIDR that the kernel does not take are judged as what is around it: rules that name it wait.
   * @throws OrderError
   */
  #checkCidrs({ id, slot }: EndpointStateRow, content: SlotContent | undefined, now: number | undefined): void {
    if (content === undefined || now === slot) return;
    for (const { row, deleted } of this.ipcache.failing())
      if (!deleted && isLocalCidr(row.identity) && DIRECTIONS.some((way) => content.elements[way].has(row.identity)))
        throw new OrderError(
          `endpoint ${id} keeps its former rules: the kernel refuses ${row.prefix}, which the new rules name`,
        );
  }

  async stop(): Promise<void> {
    await Promise.all([this.slots.stop(), this.ipcache.stop(), this.endpoints.stop()]);
  }

  /** Whether the slot is in the kernel as its newest row says. */
  slotReady(slot: number): boolean {
    return this.slots.status(tableKey.slot(slot))?.kind === 'done';
  }

  /** Whether the kernel is to hold the slot as its newest row says; without a row, nothing of it. */
  slotSettled(slot: number): boolean {
    return this.slots.status(tableKey.slot(slot)) === undefined || this.slotReady(slot);
  }

  /** As `slotSettled`, of an address. */
  addressSettled(prefix: string): boolean {
    const status = this.ipcache.status(prefix);
    return status === undefined || status.kind === 'done';
  }

  /** Rows of addresses or slots that the kernel has not acknowledged: their wanted content is unknown. */
  unacknowledged(part: 'address' | 'slot'): number {
    const { lag, failing } = (part === 'slot' ? this.slots : this.ipcache).metrics();
    return lag + failing;
  }

  /** What the kernel refuses to take, in words: slots and addresses before the endpoints that wait for them. */
  refusals(): string[] {
    return [
      ...this.slots.failing().map((failure) => ({ what: `policy slot ${failure.row.slot}`, ...failure })),
      ...this.ipcache.failing().map((failure) => ({ what: `address ${failure.row.prefix}`, ...failure })),
      ...this.endpoints.failing().map((failure) => ({ what: `endpoint ${failure.row.id}`, ...failure })),
    ].flatMap(({ what, deleted, error }) => (deleted ? [] : [`${what}: ${error.message}`]));
  }

  /** How many rows the kernel has refused. */
  get failing(): number {
    return this.slots.failing().length + this.ipcache.failing().length + this.endpoints.failing().length;
  }

  /** Milliseconds until the first of the rows that the kernel has refused is due again; undefined: it refuses none. */
  get retryInMs(): number | undefined {
    const failing = [...this.slots.failing(), ...this.ipcache.failing(), ...this.endpoints.failing()];
    if (failing.length === 0) return undefined;
    const due = failing.reduce((first, { nextRetryAt }) => Math.min(first, nextRetryAt), Infinity);
    return Math.max(0, due - systemClock.now());
  }
}
