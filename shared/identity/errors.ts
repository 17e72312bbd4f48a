/**
 * Every number of an identity range is in use.
 * @fix Use fewer distinct label sets, or fewer distinct CIDRs in policies.
 */
export class IdentityExhaustedError extends Error {
  readonly code = 'ERR_WEIR_IDENTITY_EXHAUSTED';

  constructor(first: number, last: number) {
    super(
      `no identity is left in ${first}..${last}: release unused ones, or put fewer distinct label sets or CIDRs in use`,
    );
    this.name = 'IdentityExhaustedError';
  }
}

/**
 * An identity lies outside of the range of its allocator.
 * @fix This is a defect of Weir: report it, with the message.
 */
export class IdentityRangeError extends Error {
  readonly code = 'ERR_WEIR_IDENTITY_RANGE';

  constructor(id: number, first: number, last: number) {
    super(`identity ${id} is outside of ${first}..${last}: give it to the allocator of its own range`);
    this.name = 'IdentityRangeError';
  }
}
