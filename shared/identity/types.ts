/** Numeric identities (spec 3.1, 7). */
export type NumericIdentity = number;

/** Which numbers mean what; the datapath derives the scope class of an unlisted identity from the same ranges. */
export type IdentityScope = 'unknown' | 'reserved' | 'pod' | 'world';
