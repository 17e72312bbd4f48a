import type { Logger } from '../core.ts';
import type { Engine, Plan } from '../derive/index.ts';
import type { PlanWriter } from './plan-writer.ts';
import type { SlotStore } from './slot-store.ts';

/** Changes of each table taken in before others may run. */
const PULL = 250;
const RETRY_MS = 100;

export interface SyncOptions {
  readonly engine: Engine;
  /** What follows from inputs for other inputs; before each round takes them in. */
  readonly prepare: () => void;
  readonly writer: PlanWriter;
  readonly slots: Pick<SlotStore, 'trimDue'>;
  readonly breathe: () => Promise<void>;
  /** Milliseconds; any clock that only grows. */
  readonly now: () => number;
  /** Whether every input table is complete: before that the kernel is not touched. */
  readonly complete: () => boolean;
  readonly policyRevision: () => number;
  readonly onRound: () => void;
  readonly log: Logger;
}

/** Drives the kernel to what the tables say, one round after another: take in changes, conclude, carry out. */
export class SyncLoop {
  /** Policy inputs up to here have been through a round. */
  reached = 0;
  /** The error that broke the last round; rows' own errors are with their reconcilers. */
  broken: unknown;
  readonly #options: SyncOptions;
  readonly #stop = new AbortController();
  #running: Promise<void> | undefined;
  #again = false;
  #off: () => void = () => undefined;
  #timer: NodeJS.Timeout | undefined;
  #plan: Plan | undefined;

  constructor(options: SyncOptions) {
    this.#options = options;
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

  /** Runs `body` while no round does; not at all once this is stopped. Rounds that become due meanwhile follow. */
  async exclusively(body: () => void | Promise<void>): Promise<void> {
    await this.idle();
    if (this.#stop.signal.aborted) return;
    const running = (async (): Promise<void> => body())();
    this.#running = running.catch(() => undefined);
    try {
      await running;
    } finally {
      this.#running = undefined;
      if (this.#again) {
        this.#again = false;
        this.schedule();
      }
    }
  }

  /** A round runs or is due at once. */
  get busy(): boolean {
    return this.#running !== undefined;
  }

  /** Resolves when no round runs or is due at once. */
  async idle(): Promise<void> {
    while (this.#running) await this.#running;
  }

  async stop(): Promise<void> {
    this.#stop.abort();
    this.#off();
    clearTimeout(this.#timer);
    await this.#running;
    await this.#options.writer.stop();
  }

  async #run(): Promise<void> {
    const { engine, writer, slots, now, log, onRound } = this.#options;
    // Writes of the same turn go into one round.
    await new Promise((resolve) => setImmediate(resolve));
    do {
      this.#again = false;
      try {
        await this.#round();
        this.broken = undefined;
      } catch (error) {
        const again = String(error) === String(this.broken);
        this.broken = error;
        log[again ? 'debug' : 'error'](
          { error: error instanceof Error ? error.stack : String(error) },
          'a round failed; what the kernel holds stays',
        );
      }
      onRound();
    } while (this.#again && !this.#stop.signal.aborted);
    this.#running = undefined;
    if (this.#stop.signal.aborted) return;
    this.#off = engine.onPending(() => this.schedule());
    const failing = writer.unfinished || engine.failing || this.broken !== undefined;
    const due = Math.min(slots.trimDue() ?? Infinity, engine.dueAt() ?? Infinity);
    const wait = failing ? RETRY_MS : Math.max(1, due - now());
    if (wait === Infinity) return;
    this.#timer = setTimeout(() => this.schedule(), wait);
    // Trimming and the passing of time are no reason to live on.
    if (!failing) this.#timer.unref();
  }

  async #round(): Promise<void> {
    const { engine, breathe, prepare, complete, policyRevision } = this.#options;
    prepare();
    let reached = policyRevision();
    while (engine.pull(PULL)) {
      await breathe();
      reached = policyRevision();
    }
    if (!complete() || engine.awaited().size > 0) return;
    // A plan that broke off goes first, from its start.
    if (this.#plan) await this.#carryOut(this.#plan);
    this.#plan = await engine.plan();
    if (this.#plan.again) this.#again = true;
    await this.#carryOut(this.#plan);
    this.reached = reached;
  }

  async #carryOut(plan: Plan): Promise<void> {
    await this.#options.writer.carryOut(plan, this.#stop.signal);
    this.#plan = undefined;
  }
}
