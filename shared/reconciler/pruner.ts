/** Prunes: when they are due, and what they are given. */
import type { Revision } from '@weir/statedb';
import { isPromise } from './calls.ts';
import { ReconcilerStoppedError, toError } from './errors.ts';
import type { Inputs } from './inputs.ts';
import type { Parts } from './parts.ts';
import { guard } from './results.ts';

export class Pruner<T> {
  readonly #parts: Parts<T>;
  readonly #inputs: Inputs<T>;
  /** When the loop prunes next; infinity when no prune is due by time. */
  #dueAt: number;
  #attempt = 0;
  /** When the first of these attempts failed. */
  #failingSince = 0;
  /** The first prune waits until the table's state at initialisation has been attempted. */
  #after: Revision | undefined;

  constructor(parts: Parts<T>, inputs: Inputs<T>) {
    this.#parts = parts;
    this.#inputs = inputs;
    this.#dueAt = parts.settings.operations.prune === undefined ? Number.POSITIVE_INFINITY : 0;
  }

  /** Milliseconds on the reconciler's clock, once the inputs are initialised. The rest that it waits for wakes the loop. */
  get dueAt(): number {
    const early = this.#after !== undefined && this.#parts.frontier.attempted < this.#after;
    return early ? Number.POSITIVE_INFINITY : this.#dueAt;
  }

  /** A failure is told to `onPruneError` and tried again with backoff. */
  async runWhenDue(): Promise<void> {
    const { frontier, gate, results, settings } = this.#parts;
    const { clock, db, table, onPruneError } = settings;
    if (gate.closed || clock.now() < this.#dueAt) return;
    if (this.#after === undefined) {
      using snapshot = db.read();
      if (!this.#inputs.initialised(snapshot)) return;
      this.#after = snapshot.revision(table);
    }
    if (frontier.attempted < this.#after) return;
    try {
      await this.run();
    } catch (error) {
      if (error instanceof ReconcilerStoppedError) return;
      const now = clock.now();
      if (this.#attempt === 0) this.#failingSince = now;
      this.#dueAt = now + results.backoffMs(++this.#attempt);
      guard(() => onPruneError(toError(error), this.#attempt - 1, now - this.#failingSince));
    }
  }

  /**
   * Prunes now. Only what one and the same snapshot calls complete is given to the target, and no other operation runs
   * beside it: what one that began meanwhile had made of a newer row would be taken away.
   */
  async run(): Promise<void> {
    const { calls, gate, results, settings } = this.#parts;
    const { clock, name, operations, pruneIntervalMs } = settings;
    this.#check();
    if (operations.prune === undefined) return;
    if (!(await gate.until(() => calls.taken === 0))) throw new ReconcilerStoppedError(name, 'it did not prune');
    const began = performance.now();
    let failed = 1;
    try {
      await this.#call();
      failed = 0;
    } finally {
      results.called('prune', performance.now() - began, 1, failed);
    }
    this.#attempt = 0;
    this.#dueAt = pruneIntervalMs === 0 ? Number.POSITIVE_INFINITY : clock.now() + pruneIntervalMs;
  }

  #check(): void {
    using snapshot = this.#parts.settings.db.read();
    this.#inputs.check('prune', snapshot);
  }

  async #call(): Promise<void> {
    const { calls, settings } = this.#parts;
    const { db, table, operations } = settings;
    const snapshot = db.read();
    const dispose = (): void => snapshot[Symbol.dispose]();
    let returned: unknown;
    try {
      this.#inputs.check('prune', snapshot);
      returned = operations.prune?.({ [Symbol.iterator]: () => snapshot.all(table) }, calls.signal);
    } finally {
      if (!isPromise(returned)) dispose();
    }
    if (!isPromise(returned)) return;
    const promise = returned;
    await new Promise<void>((resolve, reject) => {
      const ended = (error: Error | undefined): void => {
        dispose();
        if (error === undefined) resolve();
        else reject(error);
      };
      calls.follow(promise, { timedOut: reject, ended }, true);
    });
  }
}
