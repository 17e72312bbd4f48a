import { expect, it } from '@jest/globals';
import { nodePodCidrs } from './node-facts.ts';
import type { KubeNode } from './types.ts';

it('counts pod CIDRs that one node can have', () => {
  const said = (spec: KubeNode['spec']) => nodePodCidrs({ metadata: { name: 'a' }, spec } as KubeNode);
  expect(said({ podCIDRs: ['10.1.2.0/24', 'fd00:1::/64'] })).toEqual(['10.1.2.0/24', 'fd00:1::/64']);
  expect(said({ podCIDR: '10.0.0.0/8' })).toEqual(['10.0.0.0/8']);
  expect(said({ podCIDRs: ['0.0.0.0/0', '128.0.0.0/1', '64.0.0.0/7', '::/0', '2000::/3'] })).toEqual([]);
  // What is no CIDR is for others to say.
  expect(said({ podCIDRs: ['nonsense'] })).toEqual(['nonsense']);
});
