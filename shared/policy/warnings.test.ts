/** What is valid and does not do what it seems to say: `Warning`. Labels of no identity are in parse.test.ts. */
import { describe, expect, it } from '@jest/globals';
import { parsePolicy } from './parse.ts';
import type { PolicyKind } from './types.ts';

function warned(spec: object, kind: Exclude<PolicyKind, 'BareRules'> = 'CiliumNetworkPolicy'): string[] {
  const metadata = { name: 'p', ...(kind === 'CiliumClusterwideNetworkPolicy' ? {} : { namespace: 't1' }) };
  const { rules, problems } = parsePolicy({ metadata, spec }, kind);
  expect(rules).toHaveLength(1);
  return problems.map(({ code, path, message }) => `${code} ${path}: ${message}`);
}
const web = { endpointSelector: { matchLabels: { app: 'web' } } };

it('IPv6 is nothing to warn of', () => {
  expect(
    warned({
      ...web,
      ingress: [{ fromCIDR: ['fd00::/8', '192.0.2.0/24'] }, { icmps: [{ fields: [{ family: 'IPv6', type: 128 }] }] }],
    }),
  ).toEqual([]);
  const from = [{ ipBlock: { cidr: '2001:db8::/32' } }];
  expect(warned({ podSelector: {}, ingress: [{ from }] }, 'NetworkPolicy')).toEqual([]);
});

describe('endPort', () => {
  const ports = (...list: object[]) => ({ ...web, ingress: [{ toPorts: [{ ports: list }] }] });

  it('below its port stands for the port alone, and that is said', () => {
    expect(warned(ports({ port: '80', endPort: 70, protocol: 'TCP' }))).toEqual([
      'Warning spec.ingress[0].toPorts[0].ports[0].endPort: 70 is less than port 80, and the rule is about port 80 alone: write the lower number as port, or remove endPort',
    ]);
  });

  it('that means no range, or one, needs no word', () => {
    expect(warned(ports({ port: '80', endPort: 0 }, { port: '80', endPort: 80 }, { port: '0', endPort: 9 }))).toEqual(
      [],
    );
  });
});

describe('labels that no pod has for their source', () => {
  const deny = { ingress: [{}] };
  const subject = (requirement: object, kind?: 'CiliumClusterwideNetworkPolicy') =>
    warned({ endpointSelector: requirement, ...deny }, kind);
  const none = (path: string, key: string) =>
    `Warning ${path}: pods have labels of source k8s only: what asks for "${key}" selects none of them, what excludes it excludes none; name a label of theirs`;

  it('are warned of in a subject', () => {
    expect(subject({ matchLabels: { 'reserved:host': '' } })).toEqual([none('spec.endpointSelector', 'reserved:host')]);
    expect(subject({ matchLabels: { 'cidr:10.0.0.0/8': '' } }, 'CiliumClusterwideNetworkPolicy')).toEqual([
      none('spec.endpointSelector', 'cidr:10.0.0.0/8'),
    ]);
    expect(subject({ matchExpressions: [{ key: 'container:foo', operator: 'NotIn', values: ['x'] }] })).toEqual([
      none('spec.endpointSelector', 'container:foo'),
    ]);
  });

  it('are not: a pod that is not known yet, of a cluster-wide policy, and what is reserved and excluded', () => {
    const init = { matchLabels: { 'reserved:init': '' } };
    expect(subject(init, 'CiliumClusterwideNetworkPolicy')).toEqual([]);
    expect(subject(init)).toEqual([none('spec.endpointSelector', 'reserved:init')]);
    const excluded = { matchExpressions: [{ key: 'reserved:health', operator: 'DoesNotExist' }] };
    expect(subject(excluded, 'CiliumClusterwideNetworkPolicy')).toEqual([]);
  });

  it('are refused in a peer; what is reserved there is an entity', () => {
    const peers = [{ 'container:foo': 'bar', 'any:app': 'cl' }, { 'k8s:app': 'cl' }, { 'reserved:host': '' }];
    const ingress = [{ fromEndpoints: peers.map((matchLabels) => ({ matchLabels })) }];
    expect(warned({ ...web, ingress })).toEqual([
      'UnsupportedField spec.ingress[0].fromEndpoints[0]: the label "container:foo" is of a source that pods have no labels of: use another; until then it allows nothing',
    ]);
    const [denied] = warned({ ...web, ingressDeny: ingress });
    expect(denied).toMatch(
      /^Warning spec\.ingressDeny\[0\]\.fromEndpoints\[0\]: .* all are denied that the others select/,
    );
  });
});

describe('namespaces that a CiliumNetworkPolicy does not select in', () => {
  const subject = (operator: string, values: string[], kind?: 'CiliumClusterwideNetworkPolicy') =>
    warned(
      {
        endpointSelector: { matchExpressions: [{ key: 'io.kubernetes.pod.namespace', operator, values }] },
        ingress: [{}],
      },
      kind,
    );

  it('are named where the selector asks for them beside its own', () => {
    expect(subject('In', ['t2', 't1', 't3'])).toEqual([
      'Warning spec.endpointSelector: a CiliumNetworkPolicy selects pods of its own namespace only, and none of ["t2","t3"]: write a policy in each, or a CiliumClusterwideNetworkPolicy',
    ]);
  });

  it('are not where it has its own alone, excludes others or is cluster-wide', () => {
    expect(subject('In', ['t1'])).toEqual([]);
    expect(subject('NotIn', ['t2'])).toEqual([]);
    expect(subject('In', ['t1', 't2'], 'CiliumClusterwideNetworkPolicy')).toEqual([]);
  });
});

it("A port name beside an ipBlock of egress is warned of: addresses have none. Of ingress it is the own pod's.", () => {
  const blocks = [{ ipBlock: { cidr: '10.0.0.0/8' } }, { podSelector: {} }];
  const ports = [{ port: 'http' }, { port: 443 }];
  expect(warned({ podSelector: {}, egress: [{ to: blocks, ports }] }, 'NetworkPolicy')).toEqual([
    'Warning spec.egress[0]: only pods have a port "http": an ipBlock of this rule allows nothing by the name; write the number',
  ]);
  expect(warned({ podSelector: {}, egress: [{ to: [{ podSelector: {} }], ports }] }, 'NetworkPolicy')).toEqual([]);
  expect(warned({ podSelector: {}, ingress: [{ from: blocks, ports }] }, 'NetworkPolicy')).toEqual([]);
});

describe('names of hosts', () => {
  const names = (...toFQDNs: object[]) => {
    const { problems } = parsePolicy(
      { metadata: { name: 'p', namespace: 't1' }, spec: { ...web, egress: [{ toFQDNs }] } },
      'CiliumNetworkPolicy',
    );
    return problems.map(
      ({ code, path, message }) => `${code} ${path.replace('spec.egress[0].toFQDNs[0]', '')}: ${message}`,
    );
  };

  it.each([
    ['https://API.example.com/v1', 'write "api.example.com"'],
    ['api.example.com:443', 'write "api.example.com", and the port under toPorts'],
    ['https://api.example.com:443', 'write "api.example.com", and the port under toPorts'],
    ['bücher.example', 'write "xn--bcher-kva.example"'],
    ['a b', 'use letters, digits, "-", "_" and "."; "*" stands in matchPattern'],
    ['*.example.com', 'use letters, digits, "-", "_" and "."; "*" stands in matchPattern'],
  ])('are not %s, and the message says what to write', (matchName, fix) => {
    expect(names({ matchName })).toEqual([`InvalidSpec .matchName: ${JSON.stringify(matchName)} is no name: ${fix}`]);
  });

  it('that are addresses, or have ** elsewhere than at the front, are warned of', () => {
    expect(names({ matchName: '192.0.2.1' })).toEqual([
      'Warning .matchName: "192.0.2.1" is an address, and DNS gives names addresses: use toCIDR 192.0.2.1/32',
    ]);
    expect(names({ matchPattern: 'a.**.example.com' })).toEqual([
      'Warning .matchPattern: "**" stands for several labels at the front alone, as "**."; elsewhere it is "*"',
    ]);
    expect(names({ matchPattern: '**.example.com' })).toEqual([]);
  });
});
