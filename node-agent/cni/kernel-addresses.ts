import { addressToU32, parseAddress, parsePrefix } from '@weir/net';
import type { NodeAddress } from './types.ts';

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
  }[];
}

/** What of `ip -json route show` is read. */
export interface RouteJson {
  readonly dst: string;
  readonly type?: string;
  readonly gateway?: string;
  readonly dev?: string;
}

/** Addresses of interfaces, and what routes within the prefix lead to (`ip route show table all root PREFIX`). */
export function nodeAddresses(
  cidr: string,
  links: readonly LinkJson[],
  routes: readonly RouteJson[],
): readonly NodeAddress[] {
  const whole = rangeOf(cidr);
  if (whole === undefined) return [];
  const inside = ({ first, last }: Range): boolean => first >= whole.first && last <= whole.last;
  const out: NodeAddress[] = [];
  for (const { ifname, addr_info = [] } of links) {
    for (const { family, local } of addr_info) {
      const range = family === 'inet' ? rangeOf(local) : undefined;
      if (range !== undefined && inside(range)) out.push({ ...range, what: `address on ${ifname}`, device: ifname });
    }
  }
  for (const route of routes) {
    const { dst, type, dev } = route;
    const range = rangeOf(dst);
    // The kernel adds `local` and `broadcast` for addresses of interfaces, and they are above.
    if (range === undefined || type === 'broadcast' || type === 'local') continue;
    if (!inside(range) || (range.first === whole.first && range.last === whole.last)) continue;
    out.push({ ...range, what: describeRoute(route), ...(dev === undefined ? {} : { device: dev }) });
  }
  return out;
}

/** Whether the address is among those. */
export function holds({ first, last }: Range, address: string): boolean {
  const at = addressNumber(address);
  return at >= first && at <= last;
}

/** An IPv4 address as a number. */
export function addressNumber(address: string): number {
  return addressToU32(parseAddress(address).bytes);
}

/** For people. */
export function describeRoute({ dst, type, dev }: RouteJson): string {
  return `${type === undefined || type === 'unicast' ? '' : `${type} `}route to ${dst}${dev === undefined ? '' : ` by ${dev}`}`;
}

type Range = Pick<NodeAddress, 'first' | 'last'>;

/** Of IPv4; undefined for anything else that `ip` prints (`default`). */
function rangeOf(text: string): Range | undefined {
  if (!/^[0-9.]+(\/\d+)?$/.test(text)) return undefined;
  const { bytes, bits } = parsePrefix(text);
  const first = addressToU32(bytes);
  return { first, last: first + 2 ** (32 - bits) - 1 };
}
