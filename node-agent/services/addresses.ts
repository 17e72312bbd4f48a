import { canonicalPrefix, formatAddress, readAddress } from '@weir/net';

/** Of an address or a CIDR that has been read. */
export function familyOf(text: string): 4 | 6 {
  return text.includes(':') ? 6 : 4;
}

/**
 * In canonical form, without those that are none of a Service or backend: what is no address; loopback, link-local, multicast and unspecified ones, which
 * mean something else in each network namespace; IPv4 written as IPv6, which the maps could not tell from IPv4.
 */
export function ordinary(texts: readonly string[]): string[] {
  return texts.flatMap((text) => {
    const address = readAddress(text);
    return 'family' in address && isOrdinary(address.bytes) ? [formatAddress(address.bytes)] : [];
  });
}

function isOrdinary(bytes: Uint8Array): boolean {
  const [a = 0, b = 0] = bytes;
  if (bytes.length === 4) return a !== 0 && a !== 127 && a < 224 && !(a === 169 && b === 254);
  // ::, ::1 and the forms that hold an IPv4 address begin with 10 bytes of zeros.
  const zeros = bytes.findIndex((byte) => byte !== 0);
  return a !== 0xff && !(a === 0xfe && (b & 0xc0) === 0x80) && zeros !== -1 && zeros < 10;
}

/** In canonical form; what is no CIDR is left out. */
export function cidrs(texts: readonly string[]): string[] {
  return texts.flatMap((text) => {
    try {
      return [canonicalPrefix(text.trim())];
    } catch {
      return [];
    }
  });
}
