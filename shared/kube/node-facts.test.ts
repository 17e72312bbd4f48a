import { expect, it } from '@jest/globals';
import type { KubeNode } from './kubernetes-objects.ts';
import { furtherAddresses, MOST_NODE_ADDRESSES, nodeAddresses, nodePodCidrs } from './node-facts.ts';

it('counts pod CIDRs that one node can have', () => {
  const said = (spec: KubeNode['spec']) => nodePodCidrs({ metadata: { name: 'a' }, spec } as KubeNode);
  expect(said({ podCIDRs: ['10.1.2.0/24', 'fd00:1::/64'] })).toEqual(['10.1.2.0/24', 'fd00:1::/64']);
  expect(said({ podCIDR: '10.0.0.0/8' })).toEqual(['10.0.0.0/8']);
  expect(said({ podCIDRs: ['0.0.0.0/0', '128.0.0.0/1', '64.0.0.0/7', '::/0', '2000::/3'] })).toEqual([]);
  // What is no CIDR is for others to say.
  expect(said({ podCIDRs: ['nonsense'] })).toEqual(['nonsense']);
});

it('counts the first addresses that a node reports, internal ones before external ones, each once, and says how many there are', () => {
  const said = (addresses: readonly (readonly [type: string, address: string])[]) =>
    nodeAddresses({
      apiVersion: 'v1',
      kind: 'Node',
      metadata: { name: 'a' },
      status: { addresses: addresses.map(([type, address]) => ({ type, address })) },
    });
  expect(
    said([
      ['ExternalIP', '1.2.3.4'],
      ['Hostname', 'a'],
      ['InternalIP', '10.0.0.1'],
      ['InternalIP', '10.0.0.1'],
    ]),
  ).toEqual({
    addresses: ['10.0.0.1', '1.2.3.4'],
    reported: 2,
  });
  const internal = Array.from({ length: MOST_NODE_ADDRESSES - 1 }, (_, n) => ['InternalIP', `10.0.1.${n}`] as const);
  const external = Array.from({ length: 20_000 }, (_, n) => ['ExternalIP', `1.2.${n >> 8}.${n & 255}`] as const);
  const { addresses, reported } = said([...external, ...internal]);
  expect(reported).toBe(internal.length + external.length);
  expect(addresses).toHaveLength(MOST_NODE_ADDRESSES);
  expect(addresses.slice(-2)).toEqual([internal.at(-1)?.[1], '1.2.0.0']);
});

it('counts the first addresses that the agent of a node says', () => {
  const said = (value: unknown) =>
    furtherAddresses({
      apiVersion: 'v1',
      kind: 'Node',
      metadata: { name: 'a', annotations: { 'weir.dev/addresses': value as string } },
    });
  expect(said('192.0.2.1,2001:db8::1,192.0.2.1')).toEqual(['192.0.2.1', '2001:db8::1']);
  expect([said(''), said(7), said(null), said(undefined)]).toEqual([[], [], [], []]);
  expect(said(Array.from({ length: 70 }, (_, at) => `192.0.2.${at}`).join())).toHaveLength(MOST_NODE_ADDRESSES);
  expect(furtherAddresses({ apiVersion: 'v1', kind: 'Node', metadata: { name: 'a' } })).toEqual([]);
});
