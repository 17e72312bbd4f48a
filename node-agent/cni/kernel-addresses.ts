import { addressBits, addressToInt, type Family, parseAddress, readPrefix, Unreadable } from '@weir/net';
import type { AddressRange, NodeAddress } from './types.ts';

/** What of `ip -json address show` is read. */
export interface LinkJson {
  readonly ifindex: number;
  readonly ifname: string;
  readonly mtu?: number;
  readonly flags?: readonly string[];
  readonly addr_info?: readonly {
    readonly family: string;
    readonly local: string;
    readonly prefixlen: number;
    readonly scope?: string;
    readonly temporary?: boolean;
    readonly deprecated?: boolean;
    readonly tentative?: boolean;
  }[];
}

/** What of `ip -json route show` is read. */
export interface RouteJson {
  readonly dst: string;
  readonly type?: string;
  readonly gateway?: string;
  readonly dev?: string;
  /** Absent: the main one. */
  readonly table?: string;
}

/** Routes that the kernel adds for addresses of interfaces. */
const OF_INTERFACES: ReadonlySet<string | undefined> = new Set(['local', 'broadcast', 'anycast', 'multicast']);

/** Addresses of interfaces, and what routes within the prefix lead to (`ip route show table all root PREFIX`). */
export function nodeAddresses(
  cidr: string,
  links: readonly LinkJson[],
  routes: readonly RouteJson[],
): readonly NodeAddress[] {
  const whole = rangeOf(cidr);
  if (whole === undefined) return [];
  const inside = ({ family, first, last }: AddressRange): boolean =>
    family === whole.family && first >= whole.first && last <= whole.last;
  const out: NodeAddress[] = [];
  for (const { ifname, addr_info = [] } of links) {
    for (const { local } of addr_info) {
      const range = rangeOf(local);
      if (range !== undefined && inside(range)) out.push({ ...range, what: `address on ${ifname}`, device: ifname });
    }
  }
  for (const route of routes) {
    const { dst, type, dev } = route;
    const range = rangeOf(dst);
    if (range === undefined || OF_INTERFACES.has(type)) continue;
    if (!inside(range) || (range.first === whole.first && range.last === whole.last)) continue;
    out.push({ ...range, what: describeRoute(route), ...(dev === undefined ? {} : { device: dev }) });
  }
  return out;
}

/** Whether the address is among those. */
export function holds({ family, first, last }: AddressRange, address: string): boolean {
  const parsed = parseAddress(address);
  const at = addressToInt(parsed.bytes);
  return parsed.family === family && at >= first && at <= last;
}

/** Whether it is that address, and no other. */
export function isOnly({ family, first, last }: AddressRange, address: string): boolean {
  return first === last && holds({ family, first, last }, address);
}

/** For people. */
export function describeRoute({ dst, type, dev }: RouteJson): string {
  return `${type === undefined || type === 'unicast' ? '' : `${type} `}route to ${dst}${dev === undefined ? '' : ` by ${dev}`}`;
}

/** Of a prefix or an address; undefined for anything else that `ip` prints (`default`). */
export function rangeOf(text: string): AddressRange | undefined {
  const prefix = readPrefix(text);
  if (prefix instanceof Unreadable) return undefined;
  const { family, bytes, bits } = prefix;
  const first = addressToInt(bytes);
  return { family, first, last: first + sizeOf(family, bits) - 1n };
}

/** How many addresses a prefix has. */
export function sizeOf(family: Family, bits: number): bigint {
  return 1n << BigInt(addressBits(family) - bits);
}
