import { readAddress } from './address.ts';
import { Unreadable } from './errors.ts';
import { addressBits } from './prefix.ts';
import type { Family } from './types.ts';

/** An address of each family at most. */
export interface AddressPair {
  readonly ipv4?: string;
  readonly ipv6?: string;
}

/** Of what is an address. */
export function familyOf(address: string): Family {
  return address.includes(':') ? 6 : 4;
}

/** The first of IPv4: what is no address is passed over. */
export function ipv4Of(addresses: readonly string[]): string | undefined {
  return addresses.find((address) => isAddressOf(4, address));
}

/** The first of IPv6: what is no address is passed over. */
export function ipv6Of(addresses: readonly string[]): string | undefined {
  return addresses.find((address) => isAddressOf(6, address));
}

/** The first of each family. */
export function addressPair(addresses: readonly string[]): AddressPair {
  const [ipv4, ipv6] = [ipv4Of(addresses), ipv6Of(addresses)];
  return { ...(ipv4 === undefined ? {} : { ipv4 }), ...(ipv6 === undefined ? {} : { ipv6 }) };
}

/** IPv4 first. */
export function addressesOf({ ipv4, ipv6 }: AddressPair): readonly string[] {
  return [ipv4, ipv6].filter((address) => address !== undefined);
}

export function sameAddresses(a: readonly string[], b: readonly string[]): boolean {
  return a.length === b.length && a.every((address, index) => address === b[index]);
}

/** Whether the text is an address of the family. */
export function isAddressOf(family: Family, text: string): boolean {
  const read = readAddress(text);
  return !(read instanceof Unreadable) && read.family === family;
}

/** The prefix of the one address: `10.0.0.1/32`. */
export function fullPrefix(address: string): string {
  return `${address}/${addressBits(familyOf(address))}`;
}
