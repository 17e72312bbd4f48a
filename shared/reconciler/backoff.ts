/** When a failed row is tried again: exponential delay with full jitter, and a heap of what is due. */

/**
 * Milliseconds to wait after the failed attempt number `attempt` (from 1): `min` doubled with each, at most `max`, and of
 * that any part with equal chance (full jitter), so that rows that failed together do not come back together.
 */
export function backoffDelay(attempt: number, min: number, max: number, random: () => number): number {
  return Math.min(max, min * 2 ** Math.min(attempt - 1, 60)) * (1 - random());
}

interface Due<V> {
  readonly at: number;
  readonly value: V;
}

/** Values by due time, earliest first. A value that no longer counts is left in and passed over by its owner. */
export class DueHeap<V> {
  readonly #heap: Due<V>[] = [];

  get size(): number {
    return this.#heap.length;
  }

  peek(): Due<V> | undefined {
    return this.#heap[0];
  }

  push(at: number, value: V): void {
    const heap = this.#heap;
    let i = heap.length;
    heap.push({ at, value });
    while (i > 0) {
      const parent = (i - 1) >> 1;
      if ((heap[parent] as Due<V>).at <= at) break;
      swap(heap, i, parent);
      i = parent;
    }
  }

  pop(): V | undefined {
    const heap = this.#heap;
    const top = heap[0];
    const last = heap.pop();
    if (top === undefined || last === undefined || heap.length === 0) return top?.value;
    heap[0] = last;
    let i = 0;
    for (;;) {
      let least = i;
      for (const child of [2 * i + 1, 2 * i + 2]) {
        if (child < heap.length && (heap[child] as Due<V>).at < (heap[least] as Due<V>).at) least = child;
      }
      if (least === i) return top.value;
      swap(heap, i, least);
      i = least;
    }
  }
}

function swap<V>(heap: V[], i: number, j: number): void {
  const held = heap[i] as V;
  heap[i] = heap[j] as V;
  heap[j] = held;
}
