/** Every number of the range is in use. */
export class IdentityExhaustedError extends Error {
  readonly code = 'IdentityExhausted';

  constructor(first: number, last: number) {
    super(
      `no identity is left in ${first}..${last}: release unused ones, or put fewer distinct label sets or CIDRs in use`,
    );
    this.name = 'IdentityExhaustedError';
  }
}

/** A number that does not belong to the allocator's range. */
export class IdentityRangeError extends Error {
  readonly code = 'IdentityRange';

  constructor(id: number, first: number, last: number) {
    super(`identity ${id} is outside of ${first}..${last}: give it to the allocator of its own range`);
    this.name = 'IdentityRangeError';
  }
}
