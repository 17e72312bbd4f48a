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
const DROPPED = 'the selected pods is dropped, as they have rules for';

describe('IPv6', () => {
  it.each<readonly [string, object, string[]]>([
    [
      'an allow',
      { ingress: [{ fromCIDR: ['fd00::/8'] }] },
      [`Warning spec.ingress[0]: all IPv6 to ${DROPPED} ingress: nothing is allowed by fd00::/8`],
    ],
    [
      'an allow of IPv4, too: once for the element',
      { egress: [{ toCIDR: ['192.0.2.0/24', '::/0', 'fd00::/8'] }] },
      [`Warning spec.egress[0]: all IPv6 from ${DROPPED} egress: nothing is allowed by ::/0 and 1 more`],
    ],
    [
      'a set',
      { egress: [{ toCIDRSet: [{ cidr: 'fd00::/8', except: ['fd00::/16'] }] }] },
      [`Warning spec.egress[0]: all IPv6 from ${DROPPED} egress: nothing is allowed by fd00::/8`],
    ],
    [
      'the entity',
      { ingress: [{ fromEntities: ['world-ipv6'] }] },
      [`Warning spec.ingress[0]: all IPv6 to ${DROPPED} ingress: nothing is allowed by world-ipv6`],
    ],
    [
      'a deny',
      { egressDeny: [{ toCIDR: ['fd00::/8'] }], enableDefaultDeny: { egress: false } },
      [`Warning spec.egressDeny[0]: all IPv6 from ${DROPPED} egress, not only fd00::/8`],
    ],
    ['the world of both families', { ingress: [{ fromEntities: ['world'] }] }, []],
  ])('%s', (_, rule, expected) => {
    expect(warned({ ...web, ...rule })).toEqual(expected);
  });

  it('is said of a NetworkPolicy, if it is about the direction', () => {
    const from = [{ ipBlock: { cidr: '2001:db8::/32' } }];
    expect(warned({ podSelector: {}, ingress: [{ from }] }, 'NetworkPolicy')).toEqual([
      expect.stringMatching(/^Warning spec\.ingress\[0\]: all IPv6 .*: nothing is allowed by 2001:db8::\/32$/),
    ]);
    expect(warned({ podSelector: {}, policyTypes: ['Egress'], ingress: [{ from }] }, 'NetworkPolicy')).toEqual([
      expect.stringMatching(/^Warning spec\.ingress: these rules have no effect/),
    ]);
  });
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

  it('are warned of in a peer; what is reserved there is an entity', () => {
    const peers = [{ 'container:foo': 'bar', 'any:app': 'cl' }, { 'k8s:app': 'cl' }, { 'reserved:host': '' }];
    const ingress = [{ fromEndpoints: peers.map((matchLabels) => ({ matchLabels })) }];
    expect(warned({ ...web, ingress })).toEqual([none('spec.ingress[0].fromEndpoints[0]', 'container:foo')]);
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
