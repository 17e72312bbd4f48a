import { IdentityExhaustedError, IdentityRangeError } from './errors.ts';
import type { NumericIdentity } from './types.ts';

export interface IdentityRange {
  readonly first: NumericIdentity;
  readonly last: NumericIdentity;
}

/** The number after this one, the first after the last. */
export function identityAfter({ first, last }: IdentityRange, id: NumericIdentity): NumericIdentity {
  return id === last ? first : id + 1;
}

/**
 * The lowest unused number from `from` on, wrapping at the end. Who goes on above the number that it got last reuses a
 * released one as late as possible, so that a stale reader does not take a new owner for the old one.
 *
 * A range that is used up costs a look at each of its numbers: who counts those in use knows before.
 * @throws IdentityExhaustedError when no number is unused.
 */
export function unusedIdentity(
  range: IdentityRange,
  from: NumericIdentity,
  isUsed: (id: NumericIdentity) => boolean,
): NumericIdentity {
  let id = from;
  while (isUsed(id)) {
    id = identityAfter(range, id);
    if (id === from) throw new IdentityExhaustedError(range.first, range.last);
  }
  return id;
}

/** Hands out the numbers of a range: the next one is the lowest unused one above the last handed out (`unusedIdentity`). */
export class IdentityAllocator implements IdentityRange {
  readonly first: NumericIdentity;
  readonly last: NumericIdentity;
  readonly #isUsed: (id: NumericIdentity) => boolean;
  #next: NumericIdentity;

  constructor({ first, last }: IdentityRange, isUsed: (id: NumericIdentity) => boolean) {
    if (!Number.isInteger(first) || !Number.isInteger(last) || first < 0 || last < first) {
      throw new RangeError(`${first}..${last} is no range of identities: 0 <= first <= last is needed`);
    }
    this.first = first;
    this.last = last;
    this.#isUsed = isUsed;
    this.#next = first;
  }

  /** @throws IdentityExhaustedError when no number is unused. */
  allocate(): NumericIdentity {
    const id = unusedIdentity(this, this.#next, this.#isUsed);
    this.#next = identityAfter(this, id);
    return id;
  }

  /**
   * Goes on above the highest of numbers that exist already (found after a restart). Idempotent.
   * @throws IdentityRangeError for a number outside of the range; none is adopted then.
   */
  adopt(existing: NumericIdentity | Iterable<NumericIdentity>): void {
    const ids = typeof existing === 'number' ? [existing] : [...existing];
    for (const id of ids) {
      if (!Number.isInteger(id) || id < this.first || id > this.last)
        throw new IdentityRangeError(id, this.first, this.last);
    }
    for (const id of ids) if (id >= this.#next) this.#next = identityAfter(this, id);
  }
}
