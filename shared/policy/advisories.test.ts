/**
 * Policies of Cilium's published advisories, judged by the oracle and by the compiled rules. Each names its verdicts itself, as an oracle that shares the
 * mistake would agree with it. docs/security.md has the list.
 */
import { describe, expect, it } from '@jest/globals';
import { judgeFlow, parseObjects } from './testing/flows.ts';
import { allowing } from './testing/parsed.ts';

const policy = (kind: string, name: string, spec: object, namespace?: string) => ({
  apiVersion: kind === 'NetworkPolicy' ? 'networking.k8s.io/v1' : 'cilium.io/v2',
  kind,
  metadata: { name, ...(namespace === undefined ? {} : { namespace }) },
  spec,
});
const web = { matchLabels: { app: 'web' } };
const cnp = (name: string, spec: object) =>
  policy('CiliumNetworkPolicy', name, { endpointSelector: web, ...spec }, 'a');
const ccnp = (name: string, spec: object) => policy('CiliumClusterwideNetworkPolicy', name, spec);
const knp = (name: string, spec: object) => policy('NetworkPolicy', name, { podSelector: web, ...spec }, 'a');
const tcp = (port: string, endPort?: number) => ({
  ports: [{ port, protocol: 'TCP', ...(endPort === undefined ? {} : { endPort }) }],
});

function judged(objects: readonly object[], flows: readonly string[]): void {
  const { rules, problems } = parseObjects(objects as readonly Readonly<Record<string, unknown>>[]);
  expect(problems.filter(({ code }) => code !== 'UnsupportedField')).toEqual([]);
  for (const flow of flows) {
    const { expected, oracle, compiled } = judgeFlow(rules, flow, {});
    expect({ flow, oracle, compiled }).toEqual({ flow, oracle: expected, compiled: expected });
  }
}

describe('a deny of a wide CIDR', () => {
  const deny = ccnp('deny', {
    endpointSelector: {},
    egress: [{ toEntities: ['all'] }],
    egressDeny: [{ toCIDRSet: [{ cidr: '10.0.0.0/8' }] }],
  });

  it.each<readonly [string, readonly object[]]>([
    ['an allow of one address', [cnp('narrow', { egress: [{ toCIDRSet: [{ cidr: '10.1.2.3/32' }] }] })]],
    [
      'one without default deny',
      [
        cnp('narrow', {
          egress: [{ toCIDRSet: [{ cidr: '10.1.2.3/32' }] }],
          enableDefaultDeny: { egress: false, ingress: false },
        }),
      ],
    ],
    ['one of everything', [cnp('all', { egress: [{ toEntities: ['all'] }, { toCIDR: ['10.1.2.3/32'] }] })]],
    [
      'one of a port of one address',
      [cnp('port', { egress: [{ toCIDR: ['10.1.2.3/32'], toPorts: [tcp('443')] }, { toEntities: ['world'] }] })],
    ],
    [
      'all of these',
      [
        cnp('a', { egress: [{ toCIDR: ['10.1.0.0/16'] }, { toCIDR: ['10.1.2.0/24'] }, { toCIDR: ['10.1.2.3/32'] }] }),
        cnp('b', { egress: [{ toEntities: ['all'] }], enableDefaultDeny: { egress: false } }),
      ],
    ],
  ])('holds beside %s', (_, others) => {
    judged([deny, ...others], ['web -> Y tcp/443: deny', 'web -> Y2 tcp/443: deny', 'web -> Z tcp/443: deny']);
  });

  it('leaves the others open: the deny and nothing else is what denies', () => {
    judged([deny], ['web -> X tcp/443: allow', 'web -> Y tcp/443: deny']);
    judged([ccnp('all', { endpointSelector: {}, egress: [{ toEntities: ['all'] }] })], ['web -> Y tcp/443: allow']);
  });
});

describe('an L7 rule within a range of ports', () => {
  const l7 = (port: string) => ({
    fromEndpoints: [{ matchLabels: { app: 'api' } }],
    toPorts: [{ ...tcp(port), rules: { http: [{ method: 'GET' }] } }],
  });

  it('gives nothing by itself, on its port or elsewhere', () => {
    judged([cnp('l7', { ingress: [l7('80')] })], ['api -> web tcp/80: deny', 'api -> web tcp/81: deny']);
  });

  it('takes no part in an allow of a range for another peer', () => {
    judged(
      [
        cnp('range', { ingress: [{ fromEndpoints: [{ matchLabels: { app: 'db' } }], toPorts: [tcp('1', 1024)] }] }),
        cnp('l7', { ingress: [l7('80')] }),
      ],
      ['api -> web tcp/80: deny', 'db -> web tcp/80: allow', 'db -> web tcp/2000: deny'],
    );
  });
});

describe('peers that are looked up elsewhere and come to nobody', () => {
  const TARGETS = ['X', 'Y', 'Y2', 'api', 'b/api', 'n2'];
  const everywhere = (verdict: string) => TARGETS.map((target) => `web -> ${target} tcp/443: ${verdict}`);
  const LOOKED_UP: readonly (readonly [string, object])[] = [
    ['toGroups', { toGroups: [{ aws: { securityGroupsIds: ['sg-none'] } }] }],
  ];
  const NAMES: readonly [string, object] = ['toFQDNs', { toFQDNs: [{ matchName: 'none.example' }] }];
  const EMPTY: readonly (readonly [string, object])[] = [
    ['toNodes', { toNodes: [{ matchLabels: { none: 'none' } }] }],
    ['a CIDR group', { toCIDRSet: [{ cidrGroupRef: 'none' }] }],
    ['toEndpoints', { toEndpoints: [] }],
    ['toCIDR', { toCIDR: [] }],
    ['toCIDRSet', { toCIDRSet: [] }],
    ['toEntities', { toEntities: [] }],
  ];

  it.each([...LOOKED_UP, NAMES, ...EMPTY])('%s: an allow is of nobody, with ports and without', (_, peer) => {
    for (const ports of [{}, { toPorts: [tcp('443')] }])
      judged([cnp('p', { egress: [{ ...peer, ...ports }] })], everywhere('deny'));
  });

  it.each(LOOKED_UP)('%s: a deny is of all whom it may name', (_, peer) => {
    const isMeant = (target: string): boolean => /^[XY]/.test(target);
    judged(
      [cnp('p', { egress: [{ toEntities: ['all'] }], egressDeny: [peer] })],
      TARGETS.map((target) => `web -> ${target} tcp/443: ${isMeant(target) ? 'deny' : 'allow'}`),
    );
  });

  it.each([
    ['toGroups', { toGroups: [] }],
    ['toFQDNs', { toFQDNs: [] }],
  ] as const)('an empty list of %s is refused, whatever else the element names', (field, peer) => {
    for (const more of [{}, { toCIDR: ['10.2.0.1/32'] }]) {
      const result = parseObjects([cnp('p', { egress: [{ ...peer, ...more }] })]);
      expect(allowing(result)).toEqual([]);
      expect(result.problems).toContainEqual(
        expect.objectContaining({ code: 'InvalidSpec', path: expect.stringContaining(field) }),
      );
    }
  });
});

describe('fromNodes, toNodes and host policies', () => {
  it.each(['fromNodes', 'toNodes'])('%s admits no workload, by whatever labels nodes and pods have', (field) => {
    const [from, to] = field === 'fromNodes' ? ['api', 'web'] : ['web', 'api'];
    const direction = field === 'fromNodes' ? 'ingress' : 'egress';
    for (const selector of [
      {},
      { matchLabels: { app: 'api' } },
      { matchExpressions: [{ key: 'app', operator: 'Exists' }] },
    ]) {
      const { rules, problems } = parseObjects([cnp('p', { [direction]: [{ [field]: [selector] }] })]);
      expect(problems).toEqual([]);
      expect(judgeFlow(rules, `${from} -> ${to} tcp/80: deny`, {})).toMatchObject({ oracle: 'deny', compiled: 'deny' });
    }
  });

  it('a policy of nodes is refused aloud, and opens no pod', () => {
    const { rules, problems } = parseObjects([
      policy('CiliumClusterwideNetworkPolicy', 'host', { nodeSelector: {}, ingress: [{ fromEntities: ['all'] }] }),
      cnp('closed', { ingress: [{}] }),
    ]);
    expect(problems).toContainEqual(expect.objectContaining({ path: expect.stringContaining('nodeSelector') }));
    expect(judgeFlow(rules, 'api -> web tcp/80: deny', {})).toMatchObject({ oracle: 'deny', compiled: 'deny' });
  });
});

describe('a NetworkPolicy with nothing but an ipBlock', () => {
  it.each<readonly [string, object]>([
    ['of outside', { cidr: '203.0.113.0/24' }],
    ['with the pod network as an exception', { cidr: '0.0.0.0/0', except: ['10.0.0.0/8'] }],
  ])('%s lets no pod in, of its own namespace or of another', (_, ipBlock) => {
    judged(
      [knp('block', { ingress: [{ from: [{ ipBlock }] }] })],
      ['api -> web tcp/80: deny', 'db -> web tcp/80: deny', 'b/cli -> web tcp/80: deny', 'dns -> web tcp/80: deny'],
    );
  });

  it('lets in the pods whose addresses it names, of whatever namespace, and no others', () => {
    judged(
      [knp('block', { ingress: [{ from: [{ ipBlock: { cidr: '10.244.0.7/32' } }] }] })],
      ['api -> web tcp/80: allow', 'db -> web tcp/80: deny', 'b/cli -> web tcp/80: deny'],
    );
  });

  it('lets in whom it names', () => {
    judged(
      [knp('block', { ingress: [{ from: [{ ipBlock: { cidr: '203.0.113.0/24' } }] }] })],
      ['X -> web tcp/80: allow'],
    );
  });
});

describe('a direction that is enforced with no port named', () => {
  it.each<readonly [string, object]>([
    ['an empty element', { ingress: [{}] }],
    ['an element without ports of another peer', { ingress: [{ fromEndpoints: [{ matchLabels: { app: 'db' } }] }] }],
    ['an empty list of ports', { ingress: [{ fromEndpoints: [{ matchLabels: { app: 'db' } }], toPorts: [] }] }],
    ['a deny alone', { ingressDeny: [{ fromEntities: ['world'] }] }],
  ])('%s closes every protocol', (_, spec) => {
    for (const flow of ['tcp/80', 'tcp/1', 'udp/53', 'sctp/9', 'icmp/8', 'gre'])
      judged([cnp('p', spec)], [`api -> web ${flow}: deny`]);
  });
});
