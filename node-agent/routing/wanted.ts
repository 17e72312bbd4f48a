import { isDeepStrictEqual } from 'node:util';
import { addressPair, familyOf, formatPrefix, readPrefix, Unreadable } from '@weir/net';
import { type Derivation, derive, type StateDB, type Table } from '@weir/statedb';
import type { NodeRow } from '../tables.ts';
import type { RouteRow } from './types.ts';

/** The routes to one node's pods, but for prefixes that this node has itself. */
export function routesTo(node: NodeRow, self: NodeRow | undefined): readonly RouteRow[] {
  const own = new Set(self?.podCidrs.flatMap(canonical));
  const { ipv4, ipv6 } = addressPair(node.addresses);
  return node.podCidrs
    .flatMap(canonical)
    .filter((prefix) => !own.has(prefix))
    .map((prefix) => {
      const gateway = familyOf(prefix) === 4 ? ipv4 : ipv6;
      return { prefix, node: node.name, ...(gateway === undefined ? {} : { gateway }) };
    });
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

/** The prefix in canonical form; nothing where it is none. */
function canonical(cidr: string): readonly string[] {
  const prefix = readPrefix(cidr);
  return prefix instanceof Unreadable ? [] : [formatPrefix(prefix)];
}
