import { describe, expect, it } from '@jest/globals';
import fc from 'fast-check';
import type { NodeRow } from '../tables.ts';
import { wantedRoutes } from './wanted.ts';

const node = (name: string, addresses: string[], podCidrs: string[]): NodeRow => ({
  name,
  addresses,
  podCidrs,
  kubeApiserver: false,
});

describe('wantedRoutes', () => {
  it('takes the IPv4 address and the IPv4 CIDRs of the others', () => {
    const nodes = [
      node('a', ['192.0.2.1'], ['10.1.1.0/24']),
      node('b', ['2001:db8::2', '192.0.2.2', '198.51.100.2'], ['fd00::/64', '10.1.2.7/24']),
      node('c', ['192.0.2.3'], []),
    ];
    expect([...wantedRoutes(nodes, 'a').values()]).toEqual([
      { prefix: '10.1.2.0/24', node: 'b', gateway: '192.0.2.2' },
    ]);
  });

  it('gives each prefix to one node, whatever the order, and never routes its own', () => {
    const row = fc.record({
      name: fc.constantFrom('a', 'b', 'c', 'd'),
      addresses: fc.array(fc.constantFrom('192.0.2.1', '192.0.2.2', 'fd00::1'), { maxLength: 2 }),
      podCidrs: fc.array(fc.constantFrom('10.1.1.0/24', '10.1.2.0/24', '10.1.3.0/24', 'fd00::/64'), { maxLength: 2 }),
      kubeApiserver: fc.constant(false),
    });
    fc.assert(
      fc.property(fc.uniqueArray(row, { selector: (entry) => entry.name }), (nodes) => {
        const wanted = wantedRoutes(nodes, 'a');
        expect(wantedRoutes([...nodes].reverse(), 'a')).toEqual(wanted);
        const own: readonly string[] = nodes.find((entry) => entry.name === 'a')?.podCidrs ?? [];
        const claimed = nodes
          .filter((entry) => entry.name !== 'a')
          .flatMap((entry) => entry.podCidrs.filter((cidr) => cidr.startsWith('10.') && !own.includes(cidr)));
        expect([...wanted.keys()].sort()).toEqual([...new Set(claimed)].sort());
        for (const { prefix, node: name, gateway } of wanted.values()) {
          const claimants = nodes.filter(
            (entry) => entry.name !== 'a' && (entry.podCidrs as string[]).includes(prefix),
          );
          expect(name).toBe(claimants.map((entry) => entry.name).sort()[0]);
          expect(gateway).toBe(
            nodes.find((entry) => entry.name === name)?.addresses.find((address) => address.startsWith('192.')),
          );
        }
      }),
    );
  });
});
