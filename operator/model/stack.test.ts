/** What world-ipv4 and its like select follows the pod networks of nodes: of the policies that say such a word, and of no others. */
import { beforeEach, expect, it } from '@jest/globals';
import { nodeRow, policyRow } from '../kubernetes/rows.ts';
import { cnp, node } from '../testing.ts';
import { TestModel } from './testing/test-model.ts';

const FOUR = ['10.244.0.0/24'];
const BOTH = ['10.244.0.0/24', 'fd00:1::/64'];
let model: TestModel;
beforeEach(() => {
  model = new TestModel({ cluster: 'default', identityGraceMs: 1_000_000, now: () => 1_700_000_000_000 });
});

const setNode = (name: string, podCIDRs: readonly string[]): void => {
  model.setNode(nodeRow(node(name, 'True', { podCIDRs })));
};
const apply = (name: string, ingress: object): void => {
  model.setPolicy(
    policyRow(cnp(`n/${name}`, { endpointSelector: {}, ingress: [ingress] }) as never, 'CiliumNetworkPolicy'),
  );
};
/** Peers of each policy whose rules have changed since the last call. */
const changed = (): Record<string, unknown> =>
  Object.fromEntries(
    model.flush().resolved.map(({ row, key }) => [row?.source.name ?? key, row?.rules.map(({ peers }) => peers)]),
  );
const NOBODY = [[{ entity: 'none' }]];
const entity = (name: string) => [[{ entity: name }]];

it('is as of all nodes at a start', () => {
  setNode('node-1', BOTH);
  apply('four', { fromEntities: ['world-ipv4'] });
  model.adoptionDone();
  expect(changed()).toEqual({ four: entity('world-ipv4') });
});

it('changes with the first node of a second family, and with the last', () => {
  setNode('node-1', FOUR);
  model.adoptionDone();
  apply('four', { fromEntities: ['world-ipv4'] });
  apply('label', { fromEndpoints: [{ matchLabels: { 'reserved:world': '' } }] });
  apply('other', { fromEntities: ['world'] });
  expect(changed()).toEqual({ four: NOBODY, label: entity('world'), other: entity('world') });
  setNode('node-2', FOUR);
  expect(changed()).toEqual({});
  setNode('node-2', BOTH);
  expect(changed()).toEqual({ four: entity('world-ipv4'), label: [[]] });
  setNode('node-1', BOTH);
  expect(changed()).toEqual({});
  setNode('node-1', FOUR);
  model.deleteNode('node-2');
  expect(changed()).toEqual({ four: NOBODY, label: entity('world') });
});

it('closes them while no node says where its pods are', () => {
  setNode('node-1', []);
  model.adoptionDone();
  apply('four', { fromEntities: ['world-ipv4'] });
  apply('label', { fromEndpoints: [{ matchLabels: { 'reserved:world': '' } }] });
  expect(changed()).toEqual({ four: NOBODY, label: [[]] });
});
