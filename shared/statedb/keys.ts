/**
 * Index keys. A key is a string compared by its code units; every helper here makes strings whose units are bytes
 * (0 to 255), so that the order of keys is the order of bytes.
 */
import { InvalidKeyError } from './errors.ts';
import type { Key } from './types.ts';

const SIGN = 1n << 63n;
const MAX_PREFIX_BYTES = 31;

function bigEndian64(value: bigint): Key {
  let out = '';
  for (let shift = 56n; shift >= 0n; shift -= 8n) out += String.fromCharCode(Number((value >> shift) & 0xffn));
  return out;
}

function integer(value: number | bigint, min: bigint, max: bigint, what: string): bigint {
  if (typeof value === 'number' && !Number.isSafeInteger(value)) {
    throw new InvalidKeyError(`${value} is not a safe integer; pass a bigint for values beyond 2^53`);
  }
  const big = BigInt(value);
  if (big < min || big > max) throw new InvalidKeyError(`${value} does not fit a ${what} of 64 bits`);
  return big;
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

export const keys = {
  /** A signed integer of 64 bits; negative numbers sort before positive ones. Throws `InvalidKeyError`. */
  int(value: number | bigint): Key {
    return bigEndian64(integer(value, -SIGN, SIGN - 1n, 'signed integer') + SIGN);
  },

  /** An unsigned integer of 64 bits, in numeric order. Throws `InvalidKeyError`. */
  uint(value: number | bigint): Key {
    return bigEndian64(integer(value, 0n, (1n << 64n) - 1n, 'unsigned integer'));
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
        throw new InvalidKeyError(`${byte} is not a byte`);
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
