/** Warnings of selectors that only pods on their node's network match: each goes when that is not so any more. */
import { beforeEach, describe, expect, it } from '@jest/globals';
import { namespaceRow, nodeRow, podRow, policyRow } from '../kubernetes/rows.ts';
import { cnp, namespace, node, pod } from '../testing.ts';
import { TestModel } from './testing/test-model.ts';

const gateway = { matchLabels: { app: 'gateway' } };
const web = { matchLabels: { app: 'web' } };
const SUBJECT =
  'all pods that are selected, such as n/gw-1, are on the network of their node: no policy applies to them';
const PEER = (word: string): string =>
  `all pods that are selected, such as n/gw-1, are on the network of their node, and so are their node to a policy: write ${word}Entities (host, remote-node)`;
const VALID = 'The policy is valid.';
const POLICIES: readonly (readonly [string, object, string])[] = [
  ['a subject', { endpointSelector: gateway, ingress: [{}] }, `spec.ingress[0]: ${SUBJECT}`],
  [
    'a peer that may come',
    { endpointSelector: web, ingress: [{ fromEndpoints: [gateway] }] },
    `spec.ingress[0]: ${PEER('from')}`,
  ],
  [
    'a peer that is denied',
    { endpointSelector: web, egressDeny: [{ toEndpoints: [gateway] }] },
    `spec.egressDeny[0]: ${PEER('to')}`,
  ],
];

let model: TestModel;
beforeEach(() => {
  model = new TestModel({ cluster: 'default', identityGraceMs: 1_000_000, now: () => 1_700_000_000_000 });
  model.setNamespace(namespaceRow(namespace('n')));
  model.setNode(nodeRow(node('node-1', 'True', { podCIDRs: ['10.0.0.0/24'] })));
  model.adoptionDone();
});

function setPod(name: string, hostNetwork: boolean, app = 'gateway', more: { readonly phase?: string } = {}): void {
  const ip = hostNetwork ? '172.30.0.11' : '10.0.0.9';
  model.setPod(podRow(pod(`n/${name}`, { app }, { ip, node: 'node-1', hostNetwork, ...more })));
}
function said(): string | undefined {
  const last = model.flush().statuses.at(-1)?.row;
  return last?.status.conditions.find(({ type }) => type === 'Valid')?.message;
}

describe.each(POLICIES)('%s that only pods on the network of their node match', (_title, spec, text) => {
  const warned = `${VALID} Warning: ${text}`;

  it('is warned of while it has such pods', () => {
    setPod('gw-1', true);
    model.setPolicy(policyRow(cnp('n/p', spec), 'CiliumNetworkPolicy'));
    expect(said()).toBe(warned);
    model.deletePod('n/gw-1');
    expect(said()).toBe(VALID);
    setPod('gw-1', true);
    expect(said()).toBe(warned);
    setPod('gw-1', true, 'gateway', { phase: 'Succeeded' });
    expect(said()).toBe(VALID);
  });

  it('is warned of while it has no other pod', () => {
    model.setPolicy(policyRow(cnp('n/p', spec), 'CiliumNetworkPolicy'));
    expect(said()).toBe(VALID);
    setPod('gw-1', true);
    expect(said()).toBe(warned);
    setPod('gw-2', false);
    expect(said()).toBe(VALID);
    model.deletePod('n/gw-2');
    expect(said()).toBe(warned);
  });
});

it('no other policy is woken by such a pod, and a second one of the same labels wakes none', () => {
  const [, spec = {}] = POLICIES[1] ?? [];
  model.setPolicy(policyRow(cnp('n/p', spec), 'CiliumNetworkPolicy'));
  expect(said()).toBe(VALID);
  setPod('other', true, 'other');
  expect(said()).toBeUndefined();
  setPod('gw-1', true);
  expect(said()).toContain('n/gw-1');
  setPod('gw-2', true);
  expect(said()).toBeUndefined();
  model.deletePod('n/gw-2');
  expect(said()).toBeUndefined();
});
