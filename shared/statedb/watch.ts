/**
 * Watches: one-shot signals on the answer of a query.
 *
 * A registry keeps a watch alive only while someone listens to it or holds it, so asking for watches of ever new keys
 * does not grow the table.
 */
import type { Watch } from './types.ts';

/** Where a watch is found by what it watches. */
interface Home {
  listened(node: WatchNode, on: boolean): void;
  forget(id: string): void;
}

export class WatchNode implements Watch {
  readonly #callbacks = new Set<{ readonly run: () => void }>();
  readonly #home: Home | undefined;
  readonly #id: string;
  #fired: boolean;

  constructor(fired = false, home?: Home, id = '') {
    this.#fired = fired;
    this.#home = home;
    this.#id = id;
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
    if (this.#callbacks.size === 1) this.#home?.listened(this, true);
    return () => {
      if (this.#callbacks.delete(entry) && this.#callbacks.size === 0) this.#home?.listened(this, false);
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
    this.#home?.listened(this, false);
    this.#home?.forget(this.#id);
  }
}

/** One watch for all who wait for the next event of a kind. */
export class Pulse {
  #node: WatchNode | undefined;

  get node(): WatchNode {
    if (this.#node === undefined || this.#node.fired) this.#node = new WatchNode();
    return this.#node;
  }

  /** The watch to fire; undefined when nobody has asked for one since it last did. */
  get asked(): WatchNode | undefined {
    return this.#node?.fired === false ? this.#node : undefined;
  }
}

interface Registered<Q> {
  readonly question: Q;
  readonly ref: WeakRef<WatchNode>;
}

/** Watches by what they watch; one for each question that is asked. */
export class WatchRegistry<Q> implements Home {
  readonly #watches = new Map<string, Registered<Q>>();
  readonly #listened = new Set<WatchNode>();
  readonly #collected = new FinalizationRegistry<string>((id) => {
    if (this.#watches.get(id)?.ref.deref() === undefined) this.forget(id);
  });

  get size(): number {
    return this.#watches.size;
  }

  /** The watch of the question named `id`. */
  ask(id: string, question: Q): WatchNode {
    const known = this.get(id);
    if (known !== undefined) return known;
    const node = new WatchNode(false, this, id);
    this.#watches.set(id, { question, ref: new WeakRef(node) });
    this.#collected.register(node, id);
    return node;
  }

  get(id: string): WatchNode | undefined {
    return this.#watches.get(id)?.ref.deref();
  }

  *[Symbol.iterator](): Generator<readonly [Q, WatchNode]> {
    for (const { question, ref } of this.#watches.values()) {
      const node = ref.deref();
      if (node !== undefined) yield [question, node];
    }
  }

  listened(node: WatchNode, on: boolean): void {
    if (on) this.#listened.add(node);
    else this.#listened.delete(node);
  }

  forget(id: string): void {
    this.#watches.delete(id);
  }
}
