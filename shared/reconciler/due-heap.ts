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
