/** Warnings of what a policy names that cannot match in this cluster: each goes when that is not so any more. */
import { beforeEach, describe, expect, it } from '@jest/globals';
import { namespaceRow, nodeRow, policyRow } from '../kubernetes/rows.ts';
import { cnp, knp, namespace, node } from '../testing.ts';
import type { PolicyObjectKind } from '../types.ts';
import { TestModel } from './testing/test-model.ts';

let model: TestModel;
beforeEach(() => {
  model = new TestModel({ cluster: 'default', identityGraceMs: 1_000_000, now: () => 1_700_000_000_000 });
  for (const name of ['n', 'other']) model.setNamespace(namespaceRow(namespace(name)));
  setNode('node-1', { podCIDRs: ['10.244.0.0/24'], addresses: ['172.30.0.11'] });
  setNode('node-2', { podCIDRs: ['10.244.1.0/24'], addresses: ['172.30.0.12'] });
  model.adoptionDone();
});

function setNode(
  name: string,
  more: { readonly podCIDRs?: readonly string[]; readonly addresses?: readonly string[] },
): void {
  model.setNode(nodeRow(node(name, 'True', more)));
}
function apply(
  spec: object,
  kind: Exclude<PolicyObjectKind, 'CiliumClusterwideNetworkPolicy'> = 'CiliumNetworkPolicy',
): void {
  const make = kind === 'NetworkPolicy' ? knp : cnp;
  const object = kind === 'NetworkPolicy' ? { podSelector: {}, ...spec } : { endpointSelector: {}, ...spec };
  model.setPolicy(policyRow(make('n/p', object) as never, kind));
}

/** What Valid says since the last call; undefined: it says nothing new. */
function said(): string | undefined {
  const last = model.flush().statuses.at(-1)?.row;
  return last?.status.conditions.find(({ type }) => type === 'Valid')?.message;
}
const VALID = 'The policy is valid.';
const warns = (text: string): string => `${VALID} Warning: ${text}`;
const to = (...toCIDR: string[]) => ({ egress: [{ toCIDR }] });

describe('a CIDR of pods', () => {
  it.each([
    ['10.244.1.7/32', '10.244.1.7/32 is in the pod network of node node-2'],
    ['10.244.1.0/24', '10.244.1.0/24 is in the pod network of node node-2'],
    ['10.244.0.0/16', '10.244.0.0/16 holds pod networks of nodes node-1, node-2'],
  ])('is warned of while it is one: %s', (cidr, text) => {
    apply(to(cidr));
    expect(said()).toBe(warns(`spec.egress[0]: ${text}, and no CIDR matches a pod: write toEndpoints`));
    setNode('node-1', { podCIDRs: ['10.99.0.0/24'] });
    setNode('node-2', { podCIDRs: ['10.98.0.0/24'] });
    expect(said()).toBe(VALID);
    setNode('node-2', { podCIDRs: ['10.244.1.0/24'] });
    expect(said()).toContain('node-2');
    model.deleteNode('node-2');
    expect(said()).toBe(VALID);
  });

  it('is warned of in a deny of ingress too', () => {
    apply({ ingressDeny: [{ fromCIDRSet: [{ cidr: '10.244.0.0/24' }] }] });
    expect(said()).toContain('spec.ingressDeny[0]: 10.244.0.0/24 is in the pod network of node node-1');
  });

  it('is none where it is of other networks, wider than pods have, or of a NetworkPolicy', () => {
    apply(to('10.0.0.0/8', '0.0.0.0/0', '10.245.0.0/16', '192.0.2.1/32'));
    expect(said()).toBe(VALID);
    apply({ egress: [{ to: [{ ipBlock: { cidr: '10.244.0.0/16' } }] }] }, 'NetworkPolicy');
    expect(said()).toBe(VALID);
  });
});

describe('a CIDR of nodes', () => {
  it.each([
    ['172.30.0.11/32', 'node node-1'],
    ['172.30.0.0/24', 'nodes node-1, node-2'],
  ])('is warned of while it is one: %s', (cidr, nodes) => {
    apply({ ingress: [{ fromCIDR: [cidr] }] });
    expect(said()).toBe(
      warns(
        `spec.ingress[0]: ${cidr} holds addresses of ${nodes}, and no CIDR matches a node: write fromEntities (host, remote-node or kube-apiserver)`,
      ),
    );
    for (const name of ['node-1', 'node-2']) setNode(name, { podCIDRs: [], addresses: ['172.31.0.1'] });
    expect(said()).toBe(VALID);
  });

  it('is none where it is wide', () => {
    apply(to('172.30.0.0/16'));
    expect(said()).toBe(VALID);
  });
});

describe('IPv6', () => {
  const TEXT = 'it names IPv6, and no node has an address or a pod network of it: what it says of IPv6 matches nothing';
  it.each<[string, object]>([
    ['a CIDR', to('2001:db8::/32')],
    ['ICMPv6', { egress: [{ icmps: [{ fields: [{ family: 'IPv6', type: 128 }] }] }] }],
  ])('is warned of while no node has any: %s', (_title, spec) => {
    apply(spec);
    expect(said()).toBe(warns(`spec.egress[0]: ${TEXT}`));
    setNode('node-2', { podCIDRs: ['10.244.1.0/24', 'fd00:1::/64'] });
    expect(said()).toBe(VALID);
    setNode('node-2', { podCIDRs: ['10.244.1.0/24'] });
    expect(said()).toBe(warns(`spec.egress[0]: ${TEXT}`));
  });

  it('is nothing to warn of where no node says where pods are', () => {
    for (const name of ['node-1', 'node-2']) setNode(name, { addresses: ['172.30.0.11'] });
    apply(to('2001:db8::/32'));
    expect(said()).toBe(VALID);
  });
});

describe('a namespace that does not exist', () => {
  const from = (...names: string[]) => ({
    ingress: [
      {
        fromEndpoints: [
          { matchExpressions: [{ key: 'k8s:io.kubernetes.pod.namespace', operator: 'In', values: names }] },
        ],
      },
    ],
  });

  it('is warned of until it exists, and again when it is gone', () => {
    apply(from('shop'));
    const text = warns(
      'spec.ingress[0]: namespace "shop" does not exist: what selects pods of it selects none until it does',
    );
    expect(said()).toBe(text);
    model.setNamespace(namespaceRow(namespace('shop')));
    expect(said()).toBe(VALID);
    model.deleteNamespace('shop');
    expect(said()).toBe(text);
  });

  it('is one of several only where none of them exists', () => {
    apply(from('a', 'b', 'c'));
    expect(said()).toContain('namespaces "a", "b" and others do not exist');
    model.setNamespace(namespaceRow(namespace('c')));
    expect(said()).toBe(VALID);
  });

  it("is none of the policy's own, and of one that exists", () => {
    apply({ ingress: [{ fromEndpoints: [{ matchLabels: { app: 'a' } }] }, ...from('other').ingress] });
    expect(said()).toBe(VALID);
  });
});

it('only what a policy names wakes it: another node or namespace writes no status', () => {
  apply(to('10.244.1.7/32'));
  expect(said()).toContain('node-2');
  setNode('node-3', { podCIDRs: ['10.244.3.0/24'], addresses: ['172.30.0.13'] });
  model.setNamespace(namespaceRow(namespace('more')));
  expect(said()).toBeUndefined();
  model.deletePolicy('cnp/n/p');
  model.flush();
  using snapshot = model.db.read();
  const table = model.db.tables().find(({ name }) => name === 'policySurroundings')?.table;
  expect(table === undefined ? -1 : [...snapshot.all(table)].length).toBe(0);
});
