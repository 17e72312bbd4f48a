/** Addresses and prefixes as others wrote them, in canonical form. Nothing for what is none: a host name, or what somebody forged. */
import { canonicalPrefix, formatAddress, parseAddress } from '@weir/net';

export function canonicalAddress(text: string): string[] {
  return orNothing(() => formatAddress(parseAddress(text).bytes));
}

export function canonicalCidr(text: string): string[] {
  return orNothing(() => canonicalPrefix(text));
}

function orNothing(read: () => string): string[] {
  try {
    return [read()];
  } catch {
    return [];
  }
}
