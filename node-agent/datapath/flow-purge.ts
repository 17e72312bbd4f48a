import type { EndpointStateRow } from '../tables.ts';
import type { Afterwards } from './afterwards.ts';
import type { KernelStores } from './kernel-stores.ts';

/** Deletes the flows of endpoints that are gone, beside the rounds: it goes through the whole map of connections. */
export class FlowPurge {
  readonly #afterwards: Afterwards;
  readonly #conntrack: KernelStores['conntrack'];
  readonly #onDone: () => void;
  #running: Promise<void> | undefined;
  /** What the last deletion failed with. */
  #failure: unknown;

  constructor(afterwards: Afterwards, conntrack: KernelStores['conntrack'], onDone: () => void) {
    this.#afterwards = afterwards;
    this.#conntrack = conntrack;
    this.#onDone = onDone;
  }

  start(signal: AbortSignal): void {
    if (this.#due().length === 0) return;
    this.#running ??= this.#run(signal)
      .catch((error: unknown) => {
        this.#failure = error;
      })
      .finally(() => {
        this.#running = undefined;
      });
  }

  /** @throws what the last deletion failed with, once: rounds say it, and go on in the next */
  throwFailure(): void {
    const failure = this.#failure;
    this.#failure = undefined;
    if (failure !== undefined) throw failure;
  }

  /** An endpoint that comes back, or has the id of one that is gone, begins without the flows of before, and keeps those that it opens. */
  async before(rows: readonly EndpointStateRow[], signal: AbortSignal): Promise<void> {
    const due = new Set(this.#due());
    if (!rows.some(({ id }) => due.has(id))) return;
    this.start(signal);
    await this.#running;
    this.throwFailure();
    // They are not gone: the endpoint must not begin with them.
    if (this.#due().length > 0) signal.throwIfAborted();
  }

  /** Resolves when none is under way. */
  async idle(): Promise<void> {
    await this.#running;
  }

  #due(): readonly number[] {
    return this.#afterwards.due('purge');
  }

  async #run(signal: AbortSignal): Promise<void> {
    for (;;) {
      const due = this.#due();
      if (due.length === 0) break;
      await this.#conntrack.purge(new Set(due), signal);
      // It may have stopped early.
      if (signal.aborted) return;
      this.#afterwards.done('purge', due);
    }
    this.#onDone();
  }
}
