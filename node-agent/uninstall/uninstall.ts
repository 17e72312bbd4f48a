import { delay } from '@weir/process/delay';
import { messageOf } from '@weir/process/errors';
import type { Logger } from '../core.ts';
import type { Removal } from '../parts/contract.ts';
import { removeFromNode } from './remove.ts';

const RETRY_MS = 2000;

/** The agent's end of an uninstall: carries out the mark of its DaemonSet, says so, and from then on is idle. */
export class Uninstall {
  readonly #shares: () => readonly Removal[];
  readonly #markRemoved: (mark: string) => Promise<void>;
  readonly #log: Logger;
  readonly #retryMs: number;
  readonly #stopping = new AbortController();
  #wanted: string | undefined;
  #message: string | undefined;
  #loop: Promise<void> | undefined;

  constructor(options: {
    /** What each part takes away. */
    readonly shares: () => readonly Removal[];
    /** Tells the cluster; tries until it has been heard, or rejects when the connection ends. */
    readonly markRemoved: (mark: string) => Promise<void>;
    readonly log: Logger;
    readonly retryMs?: number;
  }) {
    this.#shares = options.shares;
    this.#markRemoved = options.markRemoved;
    this.#log = options.log;
    this.#retryMs = options.retryMs ?? RETRY_MS;
  }

  /** Begins, or carries out a later mark as well. */
  wanted(mark: string): void {
    this.#wanted = mark;
    this.#message ??= `Weir is being removed from this node (uninstall ${mark})`;
    this.#loop ??= this.#run().finally(() => {
      this.#loop = undefined;
    });
  }

  /** How far it is; undefined while nobody has asked for it. */
  get message(): string | undefined {
    return this.#message;
  }

  /** Finishes the removal under way; does not report it to the cluster. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#loop;
  }

  async #run(): Promise<void> {
    const { signal } = this.#stopping;
    let done: string | undefined;
    while (this.#wanted !== undefined && this.#wanted !== done && !signal.aborted) {
      const mark = this.#wanted;
      try {
        this.#log.info({ mark }, 'uninstall requested; removing Weir from this node');
        const { removed, left } = await removeFromNode(this.#shares());
        this.#log.info({ mark, removed, left }, 'Weir is removed from this node');
        this.#message = `Weir has been removed from this node (uninstall ${mark}); reporting that to the cluster`;
        await unlessAborted(this.#markRemoved(mark), signal);
        this.#message = `Weir has been removed from this node (uninstall ${mark}); this agent does nothing any more`;
        done = mark;
      } catch (error) {
        if (signal.aborted) return;
        this.#message = `Weir could not be removed from this node yet (uninstall ${mark}): ${messageOf(error)}`;
        this.#log.error({ mark, error: messageOf(error) }, 'uninstall failed; trying again');
        await delay(this.#retryMs, signal, { ref: false });
      }
    }
  }
}

async function unlessAborted(running: Promise<void>, signal: AbortSignal): Promise<void> {
  const { promise, reject } = Promise.withResolvers<never>();
  const aborted = (): void => reject(signal.reason);
  signal.addEventListener('abort', aborted, { once: true });
  if (signal.aborted) aborted();
  try {
    await Promise.race([running, promise]);
  } finally {
    signal.removeEventListener('abort', aborted);
    // Whatever becomes of it after a stop, nobody waits for it.
    running.catch(() => undefined);
  }
}
