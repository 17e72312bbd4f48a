import { describe, expect, it } from '@jest/globals';
import { createStateDB } from '@weir/statedb';
import { checkIncremental } from '@weir/statedb/testing';
import fc from 'fast-check';
import type { NodeRow } from '../tables.ts';
import type { RouteRow } from './types.ts';
import { deriveRoutes, routesTo } from './wanted.ts';

const node = (name: string, addresses: string[], podCidrs: string[]): NodeRow => ({
  name,
  addresses,
  podCidrs,
  kubeApiserver: false,
});

describe('routesTo', () => {
  it("leads to each CIDR by the other node's address of its family, but for our own", () => {
    const self = node('a', ['192.0.2.1'], ['10.1.1.0/24']);
    const other = node('b', ['2001:db8::2', '192.0.2.2', '198.51.100.2'], ['fd00::/64', '10.1.2.7/24', '10.1.1.9/24']);
    expect(routesTo(other, self)).toEqual([
      { prefix: 'fd00::/64', node: 'b', gateway: '2001:db8::2' },
      { prefix: '10.1.2.0/24', node: 'b', gateway: '192.0.2.2' },
    ]);
    expect(routesTo(node('c', ['192.0.2.3'], []), self)).toEqual([]);
    expect(routesTo(node('d', ['n.example', 'fd00::4'], ['10.1.4.0/24', 'junk']), undefined)).toEqual([
      { prefix: '10.1.4.0/24', node: 'd' },
    ]);
  });
});

describe('deriveRoutes', () => {
  it('gives each prefix to the first node by name that claims it, after any change of nodes', async () => {
    const row = fc.record({
      name: fc.constantFrom('a', 'b', 'c', 'd'),
      addresses: fc.array(fc.constantFrom('192.0.2.1', '192.0.2.2', 'fd00::1'), { maxLength: 2 }),
      podCidrs: fc.array(fc.constantFrom('10.1.1.0/24', '10.1.2.0/24', '10.1.3.0/24', 'fd00::/64'), { maxLength: 2 }),
      kubeApiserver: fc.constant(false),
    });
    await checkIncremental({
      step: fc.record({ row, gone: fc.boolean() }),
      create() {
        const db = createStateDB({ freeze: true });
        const nodes = db.table<NodeRow>({ name: 'nodes', key: ({ name }) => name });
        const routes = db.table<RouteRow>({ name: 'routes', key: ({ prefix }) => prefix });
        const derivation = deriveRoutes(db, nodes, routes, 'a');
        return {
          apply: ({ row: changed, gone }) =>
            db.write([nodes], (txn) => {
              if (gone) txn.delete(nodes, changed.name);
              else txn.upsert(nodes, changed);
            }),
          incremental() {
            derivation.flush();
            using snapshot = db.read();
            return [...snapshot.all(routes)];
          },
          recompute() {
            using snapshot = db.read();
            const all = [...snapshot.all(nodes)];
            const own = all.find(({ name }) => name === 'a')?.podCidrs ?? [];
            return ['10.1.1.0/24', '10.1.2.0/24', '10.1.3.0/24', 'fd00::/64'].flatMap((prefix) => {
              const claimant = all.find(({ name, podCidrs }) => name !== 'a' && podCidrs.includes(prefix));
              if (claimant === undefined || own.includes(prefix)) return [];
              const gateway = claimant.addresses.find((address) => address.includes(':') === prefix.includes(':'));
              return [{ prefix, node: claimant.name, ...(gateway === undefined ? {} : { gateway }) }];
            });
          },
          dispose: () => derivation[Symbol.dispose](),
        };
      },
    });
  });
});
