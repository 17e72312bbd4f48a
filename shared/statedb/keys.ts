/**
 * Index keys. A key is a string compared by its code units; every helper here makes strings whose units are bytes
 * (0 to 255), so that the order of keys is the order of bytes.
 */
import { InvalidKeyError } from './errors.ts';
import type { Key } from './types.ts';

const MAX_PREFIX_BYTES = 31;

/** Widths of integers in bits. Keys of different widths do not compare: use one width for one index. */
export type IntegerBits = 8 | 16 | 32 | 64;

const WIDTHS: readonly number[] = [8, 16, 32, 64];
const TWO_32 = 2 ** 32;

function bigEndian32(value: number): Key {
  return String.fromCharCode((value >>> 24) & 0xff, (value >>> 16) & 0xff, (value >>> 8) & 0xff, value & 0xff);
}

/** `high` and `low` are the two halves of 64 bits, as unsigned numbers or signed ones. */
function bigEndian64(high: number, low: number): Key {
  return String.fromCharCode(
    (high >>> 24) & 0xff,
    (high >>> 16) & 0xff,
    (high >>> 8) & 0xff,
    high & 0xff,
    (low >>> 24) & 0xff,
    (low >>> 16) & 0xff,
    (low >>> 8) & 0xff,
    low & 0xff,
  );
}

function bigEndian(value: number, bits: IntegerBits): Key {
  switch (bits) {
    case 64:
      return bigEndian64(Math.floor(value / TWO_32), value);
    case 32:
      return bigEndian32(value);
    case 16:
      return String.fromCharCode(value >>> 8, value & 0xff);
    case 8:
      return String.fromCharCode(value);
  }
}

function integer(value: number | bigint, bits: IntegerBits, signed: boolean): Key {
  if (!WIDTHS.includes(bits))
    throw new InvalidKeyError(`${String(bits)} is no width of integers; give 8, 16, 32 or 64`);
  const least = signed ? -(2 ** (bits - 1)) : 0;
  const beyond = signed ? 2 ** (bits - 1) : 2 ** bits;
  if (typeof value !== 'bigint' && !Number.isSafeInteger(value)) {
    throw new InvalidKeyError(`${String(value)} is not a safe integer; pass a bigint for values beyond 2^53`);
  }
  if (value < least || value >= beyond) {
    const kind = signed ? 'a signed' : 'an unsigned';
    throw new InvalidKeyError(
      `${value} does not fit ${kind} integer of ${bits} bits, from ${least} to below ${beyond}`,
    );
  }
  if (typeof value === 'bigint') {
    if (bits !== 64) return integer(Number(value), bits, signed);
    const high = Number(value >> 32n);
    return bigEndian64(signed ? high ^ -0x80000000 : high, Number(value & 0xffffffffn));
  }
  if (!signed) return bigEndian(value, bits);
  // The sign bit turned over, so that negative numbers come first; 2^63 does not go into a number's 53 bits.
  if (bits === 64) return bigEndian64(Math.floor(value / TWO_32) ^ -0x80000000, value);
  return bigEndian(value + 2 ** (bits - 1), bits);
}

/** The parts of a key made by `keys.prefix`. */
export interface PrefixKey {
  /** Bytes of a whole address: 4 for IPv4, 16 for IPv6. Prefixes of different sizes never contain one another. */
  readonly size: number;
  readonly bits: number;
}

/** Reads the shape of a key made by `keys.prefix`. Throws `InvalidKeyError` for any other key. */
export function parsePrefix(key: Key): PrefixKey {
  const size = key.charCodeAt(0);
  const bits = key.charCodeAt(key.length - 1);
  if (!(size >= 1 && size <= MAX_PREFIX_BYTES && key.length === size + 2 && bits <= size * 8)) {
    throw new InvalidKeyError(
      `${JSON.stringify(key)} is not a prefix key; build it with keys.prefix(bytes, bits) or keys.address(bytes)`,
    );
  }
  return { size, bits };
}

/** The key of the first `bits` bits of the prefix key `key`. `bits` is at most the key's own length. */
export function truncatePrefix(key: Key, size: number, bits: number): Key {
  const whole = bits >> 3;
  const rest = bits & 7;
  let out = key.slice(0, 1 + whole);
  if (rest !== 0) out += String.fromCharCode(key.charCodeAt(1 + whole) & (0xff << (8 - rest)) & 0xff);
  return `${out.padEnd(1 + size, '\0')}${String.fromCharCode(bits)}`;
}

/** The smallest key that is larger than every key starting with `prefix`; undefined when there is none. */
export function afterPrefix(prefix: Key): Key | undefined {
  let end = prefix.length;
  while (end > 0 && prefix.charCodeAt(end - 1) === 0xffff) end--;
  if (end === 0) return undefined;
  return prefix.slice(0, end - 1) + String.fromCharCode(prefix.charCodeAt(end - 1) + 1);
}

/** Makes keys whose order is that of the values: keys of several parts, integers, addresses and prefixes. */
export const keys = {
  /** A signed integer of `bits` bits (default 64); negative numbers sort before positive ones. Throws `InvalidKeyError`. */
  int(value: number | bigint, bits: IntegerBits = 64): Key {
    return integer(value, bits, true);
  },

  /** An unsigned integer of `bits` bits (default 64), in numeric order. Throws `InvalidKeyError`. */
  uint(value: number | bigint, bits: IntegerBits = 64): Key {
    // The common cases, checked once.
    if (bits === 64 && typeof value === 'number' && value >= 0 && Number.isSafeInteger(value)) {
      return bigEndian64(Math.floor(value / TWO_32), value);
    }
    if (bits === 32 && typeof value === 'number' && value >>> 0 === value) return bigEndian32(value);
    return integer(value, bits, false);
  },

  /** false before true. */
  bool(value: boolean): Key {
    return value ? '\u0001' : '\0';
  },

  /**
   * A composite key: ordered part by part, and two different lists of parts never give the same key, whatever the
   * parts contain. Each part is closed, so `join(a)` is a prefix of `join(a, b)` and of nothing else: scan with it.
   */
  join(...parts: readonly Key[]): Key {
    let out = '';
    for (const part of parts) out += `${part.includes('\0') ? part.replaceAll('\0', '\0\u00ff') : part}\0\u0001`;
    return out;
  },

  /**
   * The first `bits` bits of an address of `bytes.length` bytes (1 to 31), for `lpm` indexes; host bits are cleared.
   * Shorter prefixes sort before the longer ones they contain. Throws `InvalidKeyError`.
   */
  prefix(bytes: Uint8Array | readonly number[], bits: number): Key {
    const size = bytes.length;
    if (size < 1 || size > MAX_PREFIX_BYTES) {
      throw new InvalidKeyError(`an address of ${size} bytes is not supported; give 1 to ${MAX_PREFIX_BYTES}`);
    }
    if (!Number.isInteger(bits) || bits < 0 || bits > size * 8) {
      throw new InvalidKeyError(`prefix length ${bits} is not between 0 and ${size * 8}`);
    }
    let out = String.fromCharCode(size);
    for (const byte of bytes) {
      if (!Number.isInteger(byte) || byte < 0 || byte > 255) {
        throw new InvalidKeyError(`${byte} is not a byte of an address; give integers from 0 to 255`);
      }
      out += String.fromCharCode(byte);
    }
    return truncatePrefix(`${out}${String.fromCharCode(size * 8)}`, size, bits);
  },

  /** A whole address: the query to give to `find` on an `lpm` index. Throws `InvalidKeyError`. */
  address(bytes: Uint8Array | readonly number[]): Key {
    return keys.prefix(bytes, bytes.length * 8);
  },
} as const;
