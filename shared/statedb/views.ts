/** A list of fixed-width pages that never changes: replacing one place copies one page a level, however many places there are. */
const BITS = 5;
const WIDTH = 1 << BITS;

type Page = readonly unknown[];

export class Views<V> {
  readonly length: number;
  readonly #depth: number;
  readonly #top: Page;

  constructor(length = 0, depth = 0, top: Page = []) {
    this.length = length;
    this.#depth = depth;
    this.#top = top;
  }

  get(index: number): V | undefined {
    let page = this.#top;
    for (let shift = this.#depth * BITS; shift > 0; shift -= BITS) {
      const below = page[(index >> shift) & (WIDTH - 1)];
      if (below === undefined) return undefined;
      page = below as Page;
    }
    return index < this.length ? (page[index & (WIDTH - 1)] as V) : undefined;
  }

  /** With `view` at `index`, which is at most the length. */
  with(index: number, view: V): Views<V> {
    const grows = index >> ((this.#depth + 1) * BITS) > 0;
    const depth = grows ? this.#depth + 1 : this.#depth;
    const top = grows ? [this.#top] : this.#top;
    return new Views<V>(Math.max(this.length, index + 1), depth, replaced(top, depth, index, view));
  }
}

function replaced(page: Page, depth: number, index: number, view: unknown): Page {
  const copy = page.slice();
  const at = (index >> (depth * BITS)) & (WIDTH - 1);
  copy[at] = depth === 0 ? view : replaced((page[at] as Page | undefined) ?? [], depth - 1, index, view);
  return copy;
}
