import { AddressError, Unreadable } from './errors.ts';
import type { Family } from './types.ts';

const DOT = 0x2e;
const ZERO = 0x30;

export interface Address {
  readonly family: Family;
  /** 4 or 16 bytes, network order. */
  readonly bytes: Uint8Array;
}

/**
 * Parses an IPv4 or IPv6 address, strictly: four decimal octets without leading zeros, or RFC 4291 text without a zone.
 * @throws AddressError
 */
export function parseAddress(text: string): Address {
  const read = readAddress(text);
  if (read instanceof Unreadable) throw read.error;
  return read;
}

/** The same, without a throw. */
export function readAddress(text: string): Address | Unreadable {
  if (typeof text !== 'string' || text === '')
    return unreadable(String(text), 'is not an IP address: write one such as 10.1.2.3 or 2001:db8::1');
  const family = text.includes(':') ? 6 : 4;
  const bytes = family === 6 ? readV6(text) : readV4(text, text);
  return bytes instanceof Unreadable ? bytes : { family, bytes };
}

function unreadable(text: string, reason: string): Unreadable {
  return new Unreadable(AddressError, text, reason);
}

/** @param whole what a problem names */
function readV4(text: string, whole: string): Uint8Array | Unreadable {
  return plainV4(text) ?? unreadable(whole, problemOfV4(text));
}

/** What is written as it should be: lists of CIDRs are long. */
function plainV4(text: string): Uint8Array | undefined {
  const bytes = new Uint8Array(4);
  let index = 0;
  let value = 0;
  let digits = 0;
  for (let at = 0; at < text.length; at += 1) {
    const code = text.charCodeAt(at);
    if (code === DOT) {
      if (digits === 0 || index === 3) return undefined;
      bytes[index] = value;
      index += 1;
      value = 0;
      digits = 0;
    } else {
      const digit = code - ZERO;
      if (digit < 0 || digit > 9 || (digits > 0 && value === 0)) return undefined;
      value = value * 10 + digit;
      digits += 1;
      if (value > 255) return undefined;
    }
  }
  if (digits === 0 || index < 3) return undefined;
  bytes[3] = value;
  return bytes;
}

/** What is wrong with a text that `plainV4` does not read. */
function problemOfV4(text: string): string {
  const parts = text.split('.');
  if (parts.length !== 4) return 'is not an IPv4 address: write four decimal numbers such as 10.1.2.3';
  const part = parts.find((one) => !/^(0|[1-9]\d{0,2})$/.test(one) || Number(one) > 255) ?? '';
  if (!/^\d{1,3}$/.test(part)) return `is not an IPv4 address: ${JSON.stringify(part)} is not a number 0..255`;
  if (part.length > 1 && part.startsWith('0'))
    return `has a leading zero in ${JSON.stringify(part)}: write ${Number(part)} (leading zeros are read as octal by some)`;
  return `has ${Number(part)} where 0..255 is allowed`;
}

function readV6(text: string): Uint8Array | Unreadable {
  const bad = (reason: string): Unreadable => unreadable(text, `is not an IPv6 address: ${reason}`);
  if (text.includes('%')) return bad('a zone is not allowed, remove the % part');
  const halves = text.split('::');
  if (halves.length > 2) return bad('"::" may be written once');
  const head = groupsOf(halves[0] ?? '', halves.length === 1, text, bad);
  if (head instanceof Unreadable) return head;
  const tail = halves.length === 2 ? groupsOf(halves[1] ?? '', true, text, bad) : [];
  if (tail instanceof Unreadable) return tail;
  const given = head.length + tail.length;
  if (halves.length === 1 ? given !== 8 : given > 7) return bad(`it must have 8 groups, or "::" for the missing ones`);
  const groups = [...head, ...Array.from({ length: 8 - given }, () => 0), ...tail];
  const bytes = new Uint8Array(16);
  groups.forEach((group, index) => {
    bytes[index * 2] = group >> 8;
    bytes[index * 2 + 1] = group & 0xff;
  });
  return bytes;
}

/**
 * The numbers of one side of `::`.
 * @param last no other side follows: it may end in a dotted IPv4 address
 * @param whole what a problem names
 */
function groupsOf(
  side: string,
  last: boolean,
  whole: string,
  bad: (reason: string) => Unreadable,
): number[] | Unreadable {
  if (side === '') return [];
  const groups: number[] = [];
  const parts = side.split(':');
  const end = parts.length - 1;
  for (let index = 0; index <= end; index += 1) {
    const part = parts[index] ?? '';
    if (part.includes('.')) {
      if (!last || index !== end) return bad('a dotted IPv4 part is allowed at the end only');
      const v4 = readV4(part, whole);
      if (v4 instanceof Unreadable) return v4;
      groups.push(((v4[0] ?? 0) << 8) | (v4[1] ?? 0), ((v4[2] ?? 0) << 8) | (v4[3] ?? 0));
    } else if (/^[0-9a-fA-F]{1,4}$/.test(part)) groups.push(Number.parseInt(part, 16));
    else return bad(`${JSON.stringify(part)} is not a group of 1 to 4 hex digits`);
  }
  return groups;
}

/** Canonical text: dotted decimal, or RFC 5952 (lower case, longest run of zeros as `::`). */
export function formatAddress(bytes: Uint8Array): string {
  if (bytes.length === 4) return `${bytes[0]}.${bytes[1]}.${bytes[2]}.${bytes[3]}`;
  if (bytes.length !== 16) {
    throw new AddressError(`${bytes.length} bytes`, 'is no address length: 4 or 16 is needed');
  }
  const groups = Array.from({ length: 8 }, (_, i) => ((bytes[i * 2] ?? 0) << 8) | (bytes[i * 2 + 1] ?? 0));
  let best = { start: -1, length: 1 };
  for (let start = 0; start < 8; start += 1) {
    let length = 0;
    while (start + length < 8 && groups[start + length] === 0) length += 1;
    if (length > best.length) best = { start, length };
  }
  const hex = (part: number[]) => part.map((group) => group.toString(16)).join(':');
  if (best.start < 0) return hex(groups);
  return `${hex(groups.slice(0, best.start))}::${hex(groups.slice(best.start + best.length))}`;
}

/** The address as an unsigned number, first octet first: 10.0.0.1 is 0x0a000001. */
export function addressToInt(bytes: Uint8Array): bigint {
  let value = 0n;
  for (const byte of bytes) value = (value << 8n) | BigInt(byte);
  return value;
}

/** Inverse of `addressToInt`. @throws AddressError for what the family has no address of */
export function intToAddress(family: Family, value: bigint): Uint8Array {
  const length = family === 4 ? 4 : 16;
  if (value < 0n || value >> BigInt(length * 8) !== 0n)
    throw new AddressError(String(value), `is no IPv${family} address as a number`);
  return Uint8Array.from({ length }, (_, index) => Number((value >> BigInt(8 * (length - 1 - index))) & 0xffn));
}

/** Whether the address lies in ::ffff:0:0/96, IPv4 in IPv6 clothes. */
export function isV4Mapped(address: Address): boolean {
  if (address.family !== 6) return false;
  return (
    address.bytes.subarray(0, 10).every((byte) => byte === 0) &&
    address.bytes[10] === 0xff &&
    address.bytes[11] === 0xff
  );
}
