import { expect, it } from '@jest/globals';
import { kept } from './kept.ts';

class Leaf {
  readonly #seen = new Set(['a', 'b']);
  get size(): number {
    return this.#seen.size;
  }
}

class Book {
  readonly #rows = new Map<string, object>();
  readonly lists: number[][] = [];
  readonly #leaves: readonly Leaf[] = [new Leaf(), new Leaf()];
  add(): void {
    this.#rows.set(`${this.#rows.size}`, { list: [1] });
    this.lists.push([1, 2, 3]);
  }
  get leaves(): number {
    return this.#leaves.length;
  }
}

it('counts what private and public fields hold, by class and field', () => {
  const book = new Book();
  for (let count = 0; count < 4; count += 1) book.add();
  expect(kept({ book, plain: { book, numbers: [1, 2] } }, new Set())).toEqual({
    'new Book': 1,
    'new Leaf': 2,
    'Book.#rows': 4,
    'Book.#rows[].list': 4,
    'Book.lists': 4,
    'Book.lists[]': 12,
    'Book.#leaves': 2,
    'Leaf.#seen': 4,
    'plain.numbers': 2,
  });
  expect(kept({ book }, new Set(['Leaf']))).not.toHaveProperty(['new Leaf']);
});
