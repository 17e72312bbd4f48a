/**
 * Watches: one-shot signals on the answer of a lookup.
 *
 * A registry keeps a watch alive only while someone listens to it or holds it, so asking for watches of ever new keys
 * does not grow the table.
 */
import type { Key, Watch } from './types.ts';

export class WatchNode implements Watch {
  #fired: boolean;
  readonly #callbacks = new Set<{ readonly run: () => void }>();
  readonly #listening: ((node: WatchNode, on: boolean) => void) | undefined;

  constructor(fired = false, listening?: (node: WatchNode, on: boolean) => void) {
    this.#fired = fired;
    this.#listening = listening;
  }

  get fired(): boolean {
    return this.#fired;
  }

  onFire(callback: () => void): () => void {
    if (this.#fired) {
      callback();
      return () => {};
    }
    const entry = { run: callback };
    this.#callbacks.add(entry);
    if (this.#callbacks.size === 1) this.#listening?.(this, true);
    return () => {
      if (this.#callbacks.delete(entry) && this.#callbacks.size === 0) this.#listening?.(this, false);
    };
  }

  wait(signal?: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      if (this.#fired) return resolve();
      if (signal?.aborted) return reject(signal.reason);
      const aborted = () => {
        stop();
        reject(signal?.reason);
      };
      const stop = this.onFire(() => {
        signal?.removeEventListener('abort', aborted);
        resolve();
      });
      signal?.addEventListener('abort', aborted, { once: true });
    });
  }

  /** Marks the watch as fired and hands over its callbacks, to be run once every watch of the commit is marked. */
  fire(callbacks: (() => void)[]): void {
    if (this.#fired) return;
    this.#fired = true;
    for (const entry of this.#callbacks) callbacks.push(() => this.#callbacks.delete(entry) && entry.run());
    this.#listening?.(this, false);
  }
}

/** One watch for all who wait for the next event of a kind. */
export class Pulse {
  #node = new WatchNode();

  get node(): WatchNode {
    return this.#node;
  }

  fire(callbacks: (() => void)[]): void {
    const node = this.#node;
    this.#node = new WatchNode();
    node.fire(callbacks);
  }
}

/** Watches by key. */
export class WatchRegistry {
  readonly #nodes = new Map<Key, WeakRef<WatchNode>>();
  readonly #listened = new Set<WatchNode>();
  readonly #collected = new FinalizationRegistry<Key>((key) => {
    if (this.#nodes.get(key)?.deref() === undefined) this.forget(key);
  });

  get size(): number {
    return this.#nodes.size;
  }

  node(key: Key): WatchNode {
    const known = this.#nodes.get(key)?.deref();
    if (known !== undefined) return known;
    const node = new WatchNode(false, (self, on) => {
      if (on) this.#listened.add(self);
      else this.#listened.delete(self);
    });
    this.#nodes.set(key, new WeakRef(node));
    this.#collected.register(node, key);
    return node;
  }

  fire(key: Key, callbacks: (() => void)[]): void {
    const node = this.#nodes.get(key)?.deref();
    if (this.#nodes.has(key)) this.forget(key);
    node?.fire(callbacks);
  }

  protected forget(key: Key): void {
    this.#nodes.delete(key);
  }
}
