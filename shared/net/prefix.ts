import { formatAddress, readAddress } from './address.ts';
import { PrefixError, Unreadable } from './errors.ts';
import type { Family, Prefix } from './types.ts';

export interface PrefixOptions {
  /** A bare address is refused. */
  readonly requireLength?: boolean;
}

/** 32 or 128. */
export function addressBits(family: Family): number {
  return family === 4 ? 32 : 128;
}

/**
 * Parses `address/length`; host bits are masked off (10.1.2.3/8 is 10.0.0.0/8). A bare address is a prefix of full length
 * unless `requireLength`.
 * @throws PrefixError, or AddressError for its address
 */
export function parsePrefix(text: string, options: PrefixOptions = {}): Prefix {
  const read = readPrefix(text, options);
  if (read instanceof Unreadable) throw read.error;
  return read;
}

/** The same, without a throw. */
export function readPrefix(text: string, { requireLength = false }: PrefixOptions = {}): Prefix | Unreadable {
  const slash = typeof text === 'string' ? text.indexOf('/') : -1;
  const address = readAddress(slash < 0 ? text : text.slice(0, slash));
  if (address instanceof Unreadable) return address;
  const { family, bytes } = address;
  const full = addressBits(family);
  if (slash < 0) {
    if (!requireLength) return { family, bytes, bits: full };
    return new Unreadable(PrefixError, text, `has no prefix length: write ${text}/${full} for the single address`);
  }
  const length = text.slice(slash + 1);
  if (!/^(0|[1-9]\d{0,2})$/.test(length) || Number(length) > full) {
    return new Unreadable(
      PrefixError,
      text,
      `has the prefix length ${JSON.stringify(length)}: write a decimal number 0..${full} without leading zeros (no mask)`,
    );
  }
  clearFrom(bytes, Number(length));
  return { family, bytes, bits: Number(length) };
}

/** The prefix of `bits` bits that holds the address. */
export function maskPrefix(family: Family, address: Uint8Array, bits: number): Prefix {
  const bytes = address.slice();
  clearFrom(bytes, bits);
  return { family, bytes, bits };
}

/** Clears all bits but the first `bits`. */
function clearFrom(bytes: Uint8Array, bits: number): void {
  const whole = bits >> 3;
  if (whole < bytes.length) bytes[whole] = (bytes[whole] ?? 0) & (0xff00 >> (bits & 7));
  for (let index = whole + 1; index < bytes.length; index += 1) bytes[index] = 0;
}

export function formatPrefix(prefix: Prefix): string {
  return `${formatAddress(prefix.bytes)}/${prefix.bits}`;
}

/** `formatPrefix(parsePrefix(text))`. */
export function canonicalPrefix(text: string): string {
  return formatPrefix(parsePrefix(text));
}

/** Whether every address of `inner` is in `outer`. False across families. */
export function prefixContains(outer: Prefix, inner: Prefix): boolean {
  return outer.family === inner.family && outer.bits <= inner.bits && addressIn(outer, inner.bytes);
}

/** Whether the address (4 or 16 bytes) is in the prefix. False across families. */
export function addressIn(prefix: Prefix, address: Uint8Array): boolean {
  if (address.length !== prefix.bytes.length) return false;
  const whole = prefix.bits >> 3;
  for (let index = 0; index < whole; index += 1) {
    if (address[index] !== prefix.bytes[index]) return false;
  }
  const rest = prefix.bits & 7;
  if (rest === 0) return true;
  const mask = (0xff00 >> rest) & 0xff;
  return ((address[whole] ?? 0) & mask) === ((prefix.bytes[whole] ?? 0) & mask);
}

/** Order for canonical lists: family, then address, then length (shorter first). */
export function comparePrefixes(a: Prefix, b: Prefix): number {
  if (a.family !== b.family) return a.family - b.family;
  for (let index = 0; index < a.bytes.length; index += 1) {
    const difference = (a.bytes[index] ?? 0) - (b.bytes[index] ?? 0);
    if (difference !== 0) return difference;
  }
  return a.bits - b.bits;
}
