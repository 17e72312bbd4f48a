/** Addresses, prefixes, ports: strict parsing (no leading zeros, no short forms, no zones), canonical printing. */
export type Family = 4 | 6;

/** A prefix with host bits masked. `bytes` has 4 or 16 elements. */
export interface Prefix {
  readonly family: Family;
  readonly bytes: Uint8Array;
  readonly bits: number;
}
