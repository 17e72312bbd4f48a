import { canonicalPrefix, parseAddress } from '@weir/net';
import type { NodeRow } from '../tables.ts';
import type { RouteRow } from './types.ts';

/** The routes that the nodes ask for, by prefix. Where two nodes claim one prefix, the first by name has it. */
export function wantedRoutes(nodes: Iterable<NodeRow>, self: string): ReadonlyMap<string, RouteRow> {
  const others = [...nodes].filter((node) => node.name !== self).sort((a, b) => (a.name < b.name ? -1 : 1));
  const own = new Set([...nodes].filter((node) => node.name === self).flatMap((node) => node.podCidrs.flatMap(ipv4)));
  const routes = new Map<string, RouteRow>();
  for (const { name, podCidrs, addresses } of others) {
    const gateway = addresses.find(isIpv4);
    for (const prefix of podCidrs.flatMap(ipv4)) {
      if (own.has(prefix) || routes.has(prefix)) continue;
      routes.set(prefix, { prefix, node: name, ...(gateway === undefined ? {} : { gateway }) });
    }
  }
  return routes;
}

function isIpv4(text: string): boolean {
  try {
    return parseAddress(text).family === 4;
  } catch {
    return false; // no address at all: not one to route by
  }
}

/** The prefix in canonical form; nothing for IPv6. */
function ipv4(cidr: string): readonly string[] {
  return isIpv4(cidr.split('/')[0] ?? '') ? [canonicalPrefix(cidr)] : [];
}
