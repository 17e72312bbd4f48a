/** Random choices that a seed repeats (the generator is splitmix32: small, and every seed gives another sequence). */
export class Random {
  #state: number;

  constructor(seed: number) {
    this.#state = seed | 0;
  }

  /** From 0 up to 1, without 1. */
  next(): number {
    this.#state = (this.#state + 0x9e3779b9) | 0;
    let mixed = this.#state ^ (this.#state >>> 16);
    mixed = Math.imul(mixed, 0x21f0aaad);
    mixed ^= mixed >>> 15;
    mixed = Math.imul(mixed, 0x735a2d97);
    return ((mixed ^ (mixed >>> 15)) >>> 0) / 2 ** 32;
  }

  /** A whole number from `low` to `high`, both included. */
  between(low: number, high: number): number {
    return low + Math.floor(this.next() * (high - low + 1));
  }

  chance(probability: number): boolean {
    return this.next() < probability;
  }

  /** @throws RangeError when there is nothing to choose from */
  pick<T>(list: readonly T[]): T {
    if (list.length === 0) throw new RangeError('nothing to choose from');
    return list[this.between(0, list.length - 1)] as T;
  }

  /** `count` different ones, in the list's order; all when there are fewer. */
  some<T>(list: readonly T[], count: number): readonly T[] {
    const left = list.map((_, index) => index);
    while (left.length > count) left.splice(this.between(0, left.length - 1), 1);
    return left.map((index) => list[index] as T);
  }

  /** All of them, in another order. */
  shuffled<T>(list: readonly T[]): readonly T[] {
    const left = [...list];
    return list.map(() => left.splice(this.between(0, left.length - 1), 1)[0] as T);
  }

  /** By weight. */
  weighted<T extends { readonly weight: number }>(list: readonly T[]): T {
    let at = this.next() * list.reduce((sum, { weight }) => sum + weight, 0);
    for (const item of list) {
      at -= item.weight;
      if (at < 0) return item;
    }
    return this.pick(list);
  }
}
