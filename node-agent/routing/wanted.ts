import { isDeepStrictEqual } from 'node:util';
import { canonicalPrefix, parseAddress } from '@weir/net';
import { type Derivation, derive, type StateDB, type Table } from '@weir/statedb';
import type { NodeRow } from '../tables.ts';
import type { RouteRow } from './types.ts';

/** The routes to one node's pods, but for prefixes that this node has itself. */
export function routesTo(node: NodeRow, self: NodeRow | undefined): readonly RouteRow[] {
  const own = new Set(self?.podCidrs.flatMap(ipv4));
  const gateway = node.addresses.find(isIpv4);
  return node.podCidrs
    .flatMap(ipv4)
    .filter((prefix) => !own.has(prefix))
    .map((prefix) => ({ prefix, node: node.name, ...(gateway === undefined ? {} : { gateway }) }));
}

/** Keeps the routes that the nodes ask for in `routes`. Where two nodes claim one prefix, the first by name has it. */
export function deriveRoutes(
  db: StateDB,
  nodes: Table<NodeRow>,
  routes: Table<RouteRow>,
  nodeName: string,
): Derivation {
  return derive(db, {
    name: routes.name,
    into: routes,
    inputs: [nodes],
    fn: (node, read) => (node.name === nodeName ? [] : routesTo(node, read.get(nodes, nodeName))),
    equals: isDeepStrictEqual,
  });
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
