import type { Logger } from '../core.ts';
import type { Plan } from '../derive/contract.ts';
import { PlanLostError } from '../errors.ts';
import type { Clock } from './clock.ts';
import type { PlanWriter } from './plan-writer.ts';
import type { Planner } from './planner.ts';
import type { SlotStore } from './slot-store.ts';

/** Changes of each table taken in before others may run. */
const PULL = 250;
/** The least time from a round that left something undone to the next that no input asks for. */
const RETRY_MS = 100;

export interface SyncLoopOptions {
  readonly model: Planner;
  /** What follows from inputs for other inputs; before each round takes them in. */
  readonly prepare: () => void;
  readonly writer: PlanWriter;
  readonly slots: Pick<SlotStore, 'trimDue'>;
  readonly clock: Pick<Clock, 'now' | 'yieldNow'>;
  /**
   * Which inputs are complete: those that say who has which address, or rules, too. Before the former nothing is planned; before the latter
   * addresses are, and the rules stay that were found in the kernel.
   */
  readonly complete: () => 'nothing' | 'addresses' | 'rules';
  readonly policyRevision: () => number;
  readonly onRound: () => void;
  /** A plan broke: nothing is put in force any more. The agent is to restart. */
  readonly onLost?: ((error: Error) => void) | undefined;
  readonly log: Logger;
}

/**
 * Drives the kernel to what the tables say, one round after another: take in changes, compute, carry out. What is to be done while no round
 * runs (`exclusively`) runs in the same loop: of rounds that are due without end and bodies that wait, each second is a round.
 */
export class SyncLoop {
  /** Policy inputs up to here have been through a round. */
  reached = 0;
  /** The error that broke the last round; rows' own errors are with their reconcilers. */
  broken: unknown;
  readonly #options: SyncLoopOptions;
  readonly #stop = new AbortController();
  #running: Promise<void> | undefined;
  /** A round is due. */
  #due = false;
  /** Bodies that wait to be run, in their order. */
  readonly #bodies: (() => Promise<void>)[] = [];
  #off: () => void = () => undefined;
  #timer: NodeJS.Timeout | undefined;
  /** When that is over, by the clock. */
  #wakes = Infinity;
  #plan: Plan | undefined;
  /** Why nothing is computed any more. */
  #lost: PlanLostError | undefined;

  constructor(options: SyncLoopOptions) {
    this.#options = options;
  }

  /** Runs a round soon; rounds never overlap. */
  schedule(): void {
    if (this.#stop.signal.aborted) return;
    this.#due = true;
    this.#running ??= this.#run();
  }

  /** Runs `body` while no round does, nor another body; not at all once this is stopped. At most one round that is due goes before it. */
  exclusively(body: () => void | Promise<void>): Promise<void> {
    if (this.#stop.signal.aborted) return Promise.resolve();
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    this.#bodies.push(async () => {
      try {
        if (!this.#stop.signal.aborted) await body();
        resolve();
      } catch (error) {
        reject(error);
      }
    });
    this.#running ??= this.#run();
    return promise;
  }

  /** A round or a body runs or is due at once. */
  get busy(): boolean {
    return this.#running !== undefined;
  }

  /** Resolves when no round and no body runs or is due at once. */
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
    // Writes of one iteration of the event loop go into one round.
    await new Promise((resolve) => setImmediate(resolve));
    for (;;) {
      const due = this.#due && !this.#stop.signal.aborted;
      if (due) await this.#attempt();
      const body = this.#bodies.shift();
      if (!due && body === undefined) break;
      await body?.();
      // It may have left something to do.
      if (this.#options.writer.unfinished && !this.#due && !this.#stop.signal.aborted) this.#await();
    }
    // In the same moment as the look at what is due: whoever comes now starts again.
    this.#running = undefined;
  }

  /** Makes a round, and sees to the next. */
  async #attempt(): Promise<void> {
    this.#off();
    clearTimeout(this.#timer);
    this.#wakes = Infinity;
    this.#due = false;
    const before = this.broken;
    this.broken = await this.#failure(() => this.#round(), before);
    // It reads how the round ended.
    this.broken = (await this.#failure(this.#options.onRound, before)) ?? this.broken;
    if (!this.#due && !this.#stop.signal.aborted) this.#await();
  }

  /** What `body` throws, logged unless the last round failed with the same error. */
  async #failure(body: () => void | Promise<void>, before: unknown): Promise<unknown> {
    try {
      await body();
      return undefined;
    } catch (error) {
      // It was broken off, for the next agent to make again.
      if (this.#stop.signal.aborted) return error;
      this.#options.log[String(error) === String(before) ? 'debug' : 'error'](
        { error: error instanceof Error ? error.stack : String(error) },
        'a round failed; the kernel keeps what it has',
      );
      return error;
    }
  }

  /** Has the next round begin with a change, or with what becomes due by the passing of time. */
  #await(): void {
    const { model, writer, slots, clock } = this.#options;
    const now = clock.now();
    this.#off();
    // A round that broke may have left inputs that are pending at once: round would follow round, and nothing else would run.
    this.#off = this.broken === undefined ? model.onPending(() => this.schedule()) : () => undefined;
    const failing = writer.unfinished || model.failing || this.broken !== undefined;
    const due = Math.min(slots.trimDue() ?? Infinity, model.dueAt() ?? Infinity);
    const wait = failing ? Math.max(RETRY_MS, this.#rowsInMs() ?? 0) : Math.max(1, due - now);
    if (now + wait >= this.#wakes) return;
    clearTimeout(this.#timer);
    this.#wakes = now + wait;
    this.#timer = setTimeout(() => this.schedule(), wait);
    // Trimming and the passing of time are no reason to live on.
    if (!failing) this.#timer.unref();
  }

  /** How long rows that the kernel refuses rest; undefined where something else was left undone, too. */
  #rowsInMs(): number | undefined {
    const { model, writer } = this.#options;
    return this.broken === undefined && !model.failing ? writer.rows.retryInMs : undefined;
  }

  async #round(): Promise<void> {
    const { model, clock, prepare, complete, policyRevision } = this.#options;
    if (this.#lost !== undefined) throw this.#lost;
    prepare();
    let reached = policyRevision();
    while (model.pull(PULL)) {
      await clock.yieldNow();
      reached = policyRevision();
    }
    const known = complete();
    if (known === 'nothing') return;
    // A plan that broke off goes first, from its start.
    if (this.#plan) await this.#carryOut(this.#plan);
    const plan = await this.#compute({ rules: known === 'rules' && model.awaited().size === 0 });
    this.#plan = plan;
    await this.#carryOut(plan);
    if (!plan.rules) return;
    // What was kept or held back is due after a while, when the kernel refuses something, and else at once.
    const { keeps, holds, unfinished } = this.#options.writer;
    if ((holds && !unfinished) || (plan.again && !(keeps && unfinished))) this.#due = true;
    this.reached = reached;
  }

  /** A plan that breaks takes with it what its first steps have computed: only an agent that restarts computes it again. */
  async #compute(known: { readonly rules: boolean }): Promise<Plan> {
    try {
      return await this.#options.model.plan(known);
    } catch (error) {
      if (!this.#stop.signal.aborted) {
        this.#lost = new PlanLostError(error);
        this.#options.onLost?.(this.#lost);
        throw this.#lost;
      }
      throw error;
    }
  }

  async #carryOut(plan: Plan): Promise<void> {
    await this.#options.writer.carryOut(plan, this.#stop.signal);
    this.#plan = undefined;
  }
}
