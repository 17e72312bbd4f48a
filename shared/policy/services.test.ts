import { describe, expect, it } from '@jest/globals';
import { parseBareRules, parsePolicy } from './index.ts';
import { serviceView } from './services.ts';
import { judgeFlow, parseObjects } from './testing/flows.ts';
import { allowing } from './testing/parsed.ts';

type Json = Readonly<Record<string, unknown>>;

const cnp = (spec: Json): Json => ({
  apiVersion: 'cilium.io/v2',
  kind: 'CiliumNetworkPolicy',
  metadata: { name: 'p', namespace: 'a' },
  spec: { endpointSelector: { matchLabels: { app: 'web' } }, ...spec },
});
const named = (serviceName: string, namespace?: string) => ({
  k8sService: { serviceName, ...(namespace === undefined ? {} : { namespace }) },
});
const selected = (selector: Json, namespace?: string) => ({
  k8sServiceSelector: { selector, ...(namespace === undefined ? {} : { namespace }) },
});
const toPorts = [{ ports: [{ port: '80', protocol: 'TCP' }] }];

function judged(spec: Json, flows: readonly string[]): void {
  const { rules, problems } = parseObjects([cnp(spec)]);
  expect(problems.filter(({ code }) => code !== 'Warning')).toEqual([]);
  for (const flow of flows) {
    const { expected, oracle, compiled } = judgeFlow(rules, flow, {});
    expect({ flow, oracle, compiled }).toEqual({ flow, oracle: expected, compiled: expected });
  }
}

const EVERYBODY = ['db', 'db2', 'api', 'pool', 'b/api', 'dns', 'n1', 'n2', 'X', 'Y'];
/** Only these of everybody. */
const only = (verdict: 'allow' | 'deny', ...of: string[]): string[] =>
  EVERYBODY.map((each) => {
    const other = verdict === 'allow' ? 'deny' : 'allow';
    return `web -> ${each} tcp/80: ${of.includes(each) ? verdict : other}`;
  });

describe('toServices', () => {
  const CASES: readonly (readonly [string, readonly Json[], readonly string[]])[] = [
    ['a Service by its name means the pods that it selects, of its own namespace', [named('svc1', 'a')], ['db', 'db2']],
    ['the Service may be of another namespace', [named('svc1', 'b')], ['b/api']],
    ['a name without a namespace means Services of every namespace', [named('svc1')], ['db', 'db2', 'b/api']],
    ['a selector means Services by their labels', [selected({ matchLabels: { tier: 'front' } })], ['b/api']],
    ['a selector looks into the namespace that it names', [selected({ matchLabels: { tier: 'front' } }, 'a')], []],
    ['a Service without a selector means addresses, none of a pod or node', [named('outside', 'a')], ['X']],
    ['a Service without a selector and addresses means nobody', [named('none', 'a')], []],
    ['one that is unknown means nobody', [named('gone', 'a')], []],
    ['several mean all of theirs', [named('gone', 'a'), named('svc1', 'b'), named('outside', 'a')], ['b/api', 'X']],
  ];

  it.each(CASES)('%s', (_, toServices, peers) => {
    for (const ports of [{}, { toPorts }]) {
      judged({ egress: [{ toServices, ...ports }] }, only('allow', ...peers));
      judged({ egress: [{ toEntities: ['all'] }], egressDeny: [{ toServices, ...ports }] }, only('deny', ...peers));
    }
    judged({ egress: [{ toServices, toPorts }] }, ['web -> db tcp/81: deny', 'web -> X udp/80: deny']);
  });

  it('a label that no identity has lets an allow name nobody, and a deny everybody that the others select', () => {
    const toServices = [named('one-of-set', 'a')];
    judged({ egress: [{ toServices }] }, only('allow'));
    judged({ egress: [{ toEntities: ['all'] }], egressDeny: [{ toServices }] }, only('deny', 'db', 'db2'));
    const { problems } = parseObjects([cnp({ egress: [{ toServices }] })]);
    expect(problems).toEqual([expect.objectContaining({ code: 'Warning', path: 'spec.egress[0].toServices[0]' })]);
  });

  it('says what it names, and what was found', () => {
    const toServices = [named('svc1'), selected({ matchLabels: { tier: 'data' } }, 'a'), named('gone', 'a')];
    const { services } = parseObjects([cnp({ egress: [{ toServices }] })]);
    expect(services.map(({ path, found }) => [path, found])).toEqual([
      ['spec.egress[0].toServices[0]', ['a/svc1', 'b/svc1']],
      ['spec.egress[0].toServices[1]', ['a/svc1', 'a/none']],
      ['spec.egress[0].toServices[2]', []],
    ]);
  });

  it.each([
    [[], 'toServices'],
    [[{}], 'toServices[0]'],
    [[{ ...named('a'), ...selected({}) }], 'toServices[0]'],
    [['svc'], 'toServices[0]'],
    [[{ k8sService: {} }], 'toServices[0].k8sService.serviceName'],
    [[{ k8sService: { serviceName: '' } }], 'toServices[0].k8sService.serviceName'],
    [[{ k8sService: { serviceName: 'a', name: 'b' } }], 'toServices[0].k8sService.name'],
    [[{ k8sService: { serviceName: 'a', namespace: 1 } }], 'toServices[0].k8sService.namespace'],
    [[{ k8sServiceSelector: {} }], 'toServices[0].k8sServiceSelector.selector'],
    [[{ k8sServiceSelector: { selector: null } }], 'toServices[0].k8sServiceSelector.selector'],
    [[{ k8sServiceSelector: { selector: { app: 'x' } } }], 'toServices[0].k8sServiceSelector.selector.app'],
  ])('refuses %j', (toServices, path) => {
    for (const field of ['egress', 'egressDeny']) {
      const result = parseObjects([cnp({ [field]: [{ toServices, toPorts }] })]);
      expect(allowing(result)).toEqual([]);
      if (field === 'egressDeny') expect(result.rules[0]?.elements[0]?.peers).toBe('any');
      expect(result.problems).toContainEqual(
        expect.objectContaining({ code: 'InvalidSpec', path: `spec.${field}[0].${path}` }),
      );
    }
  });

  it('is no member of ingress, and none beside other members', () => {
    const item = [named('svc1', 'a')];
    for (const spec of [
      { ingress: [{ toServices: item }] },
      { egress: [{ toServices: item, toCIDR: ['10.0.0.0/8'] }] },
    ])
      expect(parseObjects([cnp(spec)]).problems).toContainEqual(expect.objectContaining({ code: 'InvalidSpec' }));
  });

  it('is not supported in bare rules, as an agent has no Services of the cluster to resolve them by', () => {
    const rule = { endpointSelector: {}, egress: [{ toServices: [named('svc1', 'a')] }] };
    expect(parseBareRules([rule]).problems).toEqual([
      {
        code: 'UnsupportedField',
        path: '[0].egress[0].toServices',
        message: expect.stringContaining('toServices is read in a CiliumNetworkPolicy alone, not in imported rules'),
      },
    ]);
  });

  it('refuses what comes to more peers, or looks through more Services, than are read in one piece', () => {
    const many = Array.from(
      { length: 30_000 },
      (_, index) => `192.${(index >> 16) & 255}.${(index >> 8) & 255}.${index & 255}`,
    );
    const large = serviceView([{ namespace: 'a', name: 'large', labels: {}, addresses: many }]);
    const twice = cnp({ egress: [{ toServices: [named('large', 'a')] }, { toServices: [named('large', 'a')] }] });
    expect(parsePolicy(twice, 'CiliumNetworkPolicy', { services: large }).problems).toEqual([
      expect.objectContaining({ code: 'BudgetExceeded', path: 'spec.egress[1].toServices[0]' }),
    ]);
    const services = serviceView(
      Array.from({ length: 10_000 }, (_, index) => ({ namespace: 'a', name: `s${index}`, labels: {}, addresses: [] })),
    );
    const looks = (count: number) =>
      cnp({
        egress: [
          { toServices: Array.from({ length: count }, (_, index) => selected({ matchLabels: { n: `${index}` } })) },
        ],
      });
    expect(parsePolicy(looks(20), 'CiliumNetworkPolicy', { services }).problems).toEqual([]);
    expect(parsePolicy(looks(21), 'CiliumNetworkPolicy', { services }).problems).toEqual([
      expect.objectContaining({ code: 'BudgetExceeded', path: 'spec.egress[0].toServices[20]' }),
    ]);
  });

  it('looks through 200,000 Services at most, however often it names them', () => {
    const services = Array.from({ length: 1000 }, (_, i) => ({
      namespace: 'a',
      name: `s${i}`,
      labels: {},
      addresses: [],
    }));
    const toServices = Array.from({ length: 1000 }, () => ({ k8sServiceSelector: { selector: {}, namespace: 'a' } }));
    const { problems, services: refs } = parsePolicy(
      { metadata: { name: 'p', namespace: 'a' }, spec: { endpointSelector: {}, egress: [{ toServices }] } },
      'CiliumNetworkPolicy',
      { services: serviceView(services) },
    );
    expect(problems[0]).toMatchObject({ code: 'BudgetExceeded', path: 'spec.egress[0].toServices[199]' });
    expect(refs).toHaveLength(199);
    expect(new Set(refs.map(({ found }) => found)).size).toBe(1);
  });
});
