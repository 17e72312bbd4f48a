import { IdentityExhaustedError, IdentityRangeError } from './errors.ts';
import type { NumericIdentity } from './types.ts';

/**
 * Hands out the numbers of a range. The next number is the lowest unused one above the last handed out, wrapping at the end:
 * a released number is reused as late as possible, so that a stale reader does not take a new owner for the old one.
 */
export class IdentityAllocator {
  readonly first: NumericIdentity;
  readonly last: NumericIdentity;
  readonly #used = new Set<NumericIdentity>();
  #next: NumericIdentity;

  constructor(range: { readonly first: NumericIdentity; readonly last: NumericIdentity }) {
    if (
      !Number.isInteger(range.first) ||
      !Number.isInteger(range.last) ||
      range.first < 0 ||
      range.last < range.first
    ) {
      throw new RangeError(`${range.first}..${range.last} is no range of identities: 0 <= first <= last is needed`);
    }
    this.first = range.first;
    this.last = range.last;
    this.#next = range.first;
  }

  /** How many numbers are in use. */
  get size(): number {
    return this.#used.size;
  }

  has(id: NumericIdentity): boolean {
    return this.#used.has(id);
  }

  /** @throws IdentityExhaustedError when no number is unused. */
  allocate(): NumericIdentity {
    if (this.#used.size === this.last - this.first + 1) throw new IdentityExhaustedError(this.first, this.last);
    let id = this.#next;
    while (this.#used.has(id)) id = id === this.last ? this.first : id + 1;
    this.#used.add(id);
    this.#next = id === this.last ? this.first : id + 1;
    return id;
  }

  /**
   * Marks numbers as used that exist already (found in the API after a restart), and goes on above the highest. Idempotent.
   * @throws IdentityRangeError for a number outside of the range; none is adopted then.
   */
  adopt(existing: NumericIdentity | Iterable<NumericIdentity>): void {
    const ids = typeof existing === 'number' ? [existing] : [...existing];
    for (const id of ids) {
      if (!Number.isInteger(id) || id < this.first || id > this.last)
        throw new IdentityRangeError(id, this.first, this.last);
    }
    for (const id of ids) {
      this.#used.add(id);
      if (id >= this.#next) this.#next = id === this.last ? this.first : id + 1;
    }
  }

  /** Frees a number. Returns false when it was not in use. */
  release(id: NumericIdentity): boolean {
    return this.#used.delete(id);
  }
}
