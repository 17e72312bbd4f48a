import { createReconciler, type Reconciler } from '@weir/reconciler';
import type { StateDB } from '@weir/statedb';
import type { Logger, Tables } from '../core.ts';
import { tableKey } from '../create-tables.ts';
import type { Engine, ImportedRules, LocalNumbers, Plan } from '../derive/index.ts';
import { OrderError } from '../errors.ts';
import type { EndpointStateRow, IpcacheRow, SlotRow } from '../tables.ts';
import type { Conntrack } from './conntrack.ts';
import type { EndpointStore } from './endpoint-store.ts';
import type { IpcacheStore } from './ipcache-store.ts';
import type { PinnedDatapath } from './pins.ts';
import type { SlotStore } from './slot-store.ts';

const STEP = 1000;
/** Changes of each table taken in before others may run. */
const PULL = 250;
const RETRY_MS = 100;

export interface SyncOptions {
  readonly db: StateDB;
  readonly tables: Tables;
  readonly engine: Engine;
  readonly imported: ImportedRules;
  readonly numbers: LocalNumbers;
  readonly pinned: PinnedDatapath;
  readonly slots: SlotStore;
  readonly ipcache: IpcacheStore;
  readonly endpoints: EndpointStore;
  readonly conntrack: Conntrack;
  readonly breathe: () => Promise<void>;
  /** Whether every input table is complete: before that the kernel is not touched. */
  readonly complete: () => boolean;
  readonly saveNumbers: () => void;
  readonly policyRevision: () => number;
  readonly onRound: () => void;
  readonly log: Logger;
}

/**
 * Drives the kernel to what the tables say, one round after another. In a round: new slots and elements, then addresses,
 * then endpoints' words and programs, then what is gone. So whatever a packet is judged by is complete before it is pointed
 * at, and nothing is taken away that is still pointed at.
 */
export class SyncLoop {
  readonly slots: Reconciler<SlotRow>;
  readonly ipcache: Reconciler<IpcacheRow>;
  readonly endpoints: Reconciler<EndpointStateRow>;
  /** Policy inputs up to here have been through a round. */
  reached = 0;
  /** The error that broke the last round; rows' own errors are with their reconcilers. */
  broken: unknown;
  adopted = false;
  readonly #options: SyncOptions;
  readonly #stop = new AbortController();
  #running: Promise<void> | undefined;
  #again = false;
  #off: () => void = () => undefined;
  #timer: NodeJS.Timeout | undefined;
  #plan: Plan | undefined;
  #ipcacheFailed = false;
  #bump = new Set<number>();
  #purge = new Set<number>();

  constructor(options: SyncOptions) {
    this.#options = options;
    const { db, tables, slots, ipcache, endpoints, engine, log } = options;
    const retry = { db, minBackoffMs: 50, maxBackoffMs: 2000 };
    const onError =
      (what: string, key: (row: never) => object) =>
      (row: unknown, error: Error, retries: number): void =>
        log.error({ ...key(row as never), error: error.message, retries }, `the kernel does not hold the ${what}`);
    this.slots = createReconciler<SlotRow>({
      ...retry,
      name: 'kernel-slots',
      table: tables.slots,
      operations: {
        update: (row) => slots.apply(row, (identity) => engine.addressed(identity)),
        delete: (row) => this.#free(row.slot),
      },
      onError: onError('policy slot', (row: SlotRow) => ({ slot: row.slot })),
    });
    this.ipcache = createReconciler<IpcacheRow>({
      ...retry,
      name: 'kernel-ipcache',
      table: tables.ipcache,
      operations: {
        update: (row) => ipcache.updateAll([row]),
        delete: (row) => ipcache.delete(row.prefix),
        updateBatch: (batch) => ipcache.updateAll(batch.map(({ row }) => row)),
      },
      onError: onError('address', (row: IpcacheRow) => ({ prefix: row.prefix })),
    });
    this.endpoints = createReconciler<EndpointStateRow>({
      ...retry,
      name: 'kernel-endpoints',
      table: tables.endpointStates,
      operations: {
        update: (row) => endpoints.update(row),
        delete: (row) => endpoints.delete(row.id),
      },
      onError: onError('endpoint', (row: EndpointStateRow) => ({ endpoint: row.id })),
    });
  }

  /** Runs a round soon; rounds never overlap. */
  schedule(): void {
    if (this.#stop.signal.aborted) return;
    if (this.#running) {
      this.#again = true;
      return;
    }
    this.#off();
    clearTimeout(this.#timer);
    this.#running = this.#run();
  }

  async stop(): Promise<void> {
    this.#stop.abort();
    this.#off();
    clearTimeout(this.#timer);
    await this.#running;
    await Promise.all([this.slots.stop(), this.ipcache.stop(), this.endpoints.stop()]);
  }

  /** Whether the slot is in the kernel as its newest row says. */
  slotReady(slot: number): boolean {
    return this.slots.status(tableKey.slot(slot))?.kind === 'done';
  }

  async #run(): Promise<void> {
    // Writes of the same turn go into one round.
    await new Promise((resolve) => setImmediate(resolve));
    do {
      this.#again = false;
      try {
        await this.#round();
        this.broken = undefined;
      } catch (error) {
        this.broken = error;
        this.#options.log.error(
          { error: error instanceof Error ? error.stack : String(error) },
          'a round failed; what the kernel holds stays',
        );
      }
      this.#options.onRound();
    } while (this.#again && !this.#stop.signal.aborted);
    this.#running = undefined;
    if (this.#stop.signal.aborted) return;
    this.#off = this.#options.engine.onPending(() => this.schedule());
    const failing = this.slots.failing().length + this.ipcache.failing().length + this.endpoints.failing().length;
    if (
      failing > 0 ||
      this.#options.engine.failing ||
      this.broken !== undefined ||
      this.#bump.size > 0 ||
      this.#purge.size > 0
    ) {
      this.#timer = setTimeout(() => this.schedule(), RETRY_MS);
    }
  }

  async #round(): Promise<void> {
    const { engine, breathe, imported, complete } = this.#options;
    imported.sync();
    let reached = this.#options.policyRevision();
    while (engine.pull(PULL)) {
      await breathe();
      reached = this.#options.policyRevision();
    }
    if (!complete()) return;
    // A plan that broke off is carried out again from its start, before the next one: every step is idempotent.
    if (this.#plan) await this.#carryOut(this.#plan);
    this.#plan = await engine.plan();
    if (this.#plan.again) this.#again = true;
    await this.#carryOut(this.#plan);
    if (!this.adopted) this.#finishAdoption();
    this.reached = reached;
  }

  async #carryOut(plan: Plan): Promise<void> {
    const { numbers } = this.#options;
    // A number reaches the kernel only once a restart would know it.
    if (numbers.dirty) {
      this.#options.saveNumbers();
      numbers.dirty = false;
    }
    await this.#grow(plan);
    await this.#shrink(plan);
    this.#plan = undefined;
  }

  /** Everything that adds or moves: slots, addresses, words. */
  async #grow(plan: Plan): Promise<void> {
    const { db, tables } = this.#options;
    db.write([tables.slots], (txn) => {
      for (const row of plan.slots) txn.upsert(tables.slots, row);
    });
    await this.slots.reconcile();
    await this.#inSteps(plan.ipcache, (rows) =>
      db.write([tables.ipcache], (txn) => {
        for (const row of rows) txn.upsert(tables.ipcache, row);
      }),
    );
    await this.ipcache.reconcile();
    const states = [...plan.endpoints];
    // Addresses that the kernel refused before may have changed decisions just now.
    const failing = this.ipcache.failing().length > 0;
    if (this.#ipcacheFailed && !failing)
      states.push(...this.#options.engine.bump([...this.#options.engine.states()].map(({ id }) => id)));
    this.#ipcacheFailed = failing;
    this.#writeStates(states);
    await this.endpoints.reconcile();
  }

  /** Everything that goes, now that nothing points at it. */
  async #shrink(plan: Plan): Promise<void> {
    const { db, tables, engine, ipcache, slots, conntrack } = this.#options;
    for (const id of plan.afterGone) this.#bump.add(id);
    await this.#inSteps(plan.ipcacheGone, (prefixes) => {
      db.write([tables.ipcache], (txn) => {
        for (const prefix of prefixes) {
          // Only the kernel knew it (from before this start).
          if (txn.delete(tables.ipcache, prefix) === undefined) ipcache.delete(prefix);
        }
      });
    });
    if (plan.ipcacheGone.length > 0) await this.ipcache.reconcile();
    if (this.#bump.size > 0 && this.ipcache.failing().length === 0) {
      this.#writeStates(engine.bump(this.#bump));
      this.#bump.clear();
      await this.endpoints.reconcile();
    }
    engine.forgetCidrs(plan.ipcacheGone);
    db.write([tables.endpointStates, tables.slots], (txn) => {
      for (const id of plan.endpointsGone) txn.delete(tables.endpointStates, tableKey.endpoint(id));
      for (const slot of plan.slotsGone) txn.delete(tables.slots, tableKey.slot(slot));
    });
    for (const id of plan.endpointsGone) this.#purge.add(id);
    if (plan.endpointsGone.length > 0) await this.endpoints.reconcile();
    if (plan.slotsGone.length > 0) await this.slots.reconcile();
    slots.trim();
    if (this.#purge.size > 0) {
      await conntrack.purge(this.#purge, this.#stop.signal);
      this.#purge.clear();
    }
  }

  /** What nobody wants may go, now that every table is complete and everything wanted is in the kernel. */
  #finishAdoption(): void {
    const { db, tables, endpoints, slots, engine, ipcache, pinned, log } = this.#options;
    if (this.endpoints.failing().length + this.slots.failing().length > 0 || engine.failing) return;
    using snapshot = db.read();
    for (const id of endpoints.strays((known) => snapshot.has(tables.endpoints, tableKey.endpoint(known)))) {
      log.info({ endpoint: id }, 'removing an endpoint that nobody knows');
      endpoints.delete(id);
      this.#purge.add(id);
    }
    for (const slot of slots.slots()) {
      if (snapshot.has(tables.slots, tableKey.slot(slot)) || endpoints.uses(slot)) continue;
      slots.free(slot);
      engine.slotReleased(slot);
    }
    ipcache.forget();
    pinned.commitPins();
    this.adopted = true;
  }

  #free(slot: number): void {
    const { endpoints, slots, engine } = this.#options;
    if (endpoints.uses(slot)) throw new OrderError(`policy slot ${slot} is still in use by an endpoint`);
    slots.free(slot);
    engine.slotReleased(slot);
  }

  #writeStates(rows: readonly EndpointStateRow[]): void {
    const { db, tables } = this.#options;
    db.write([tables.endpointStates], (txn) => {
      for (const row of rows) txn.upsert(tables.endpointStates, row);
    });
  }

  async #inSteps<T>(items: readonly T[], body: (step: readonly T[]) => void): Promise<void> {
    for (let from = 0; from < items.length; from += STEP) {
      if (from > 0) await this.#options.breathe();
      body(items.slice(from, from + STEP));
    }
  }
}
