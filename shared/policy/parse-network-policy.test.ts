import { describe, expect, it } from '@jest/globals';
import fc from 'fast-check';
import { type ParseResult, parsePolicy, resolve } from './index.ts';
import { networkPolicyArbitrary } from './testing/network-policies.ts';
import { allowing } from './testing/parsed.ts';

type Json = Record<string, unknown>;
const NS = 'k8s:io.kubernetes.pod.namespace';
const TEAM = 'k8s:io.cilium.k8s.namespace.labels.team';
const HERE = { key: NS, operator: 'In', values: ['a'] };
const SOME = { key: NS, operator: 'Exists', values: [] };

function knp(spec: unknown, more: Json = {}): ParseResult {
  return parsePolicy(
    { metadata: { name: 'p', namespace: 'a' }, ...(spec === undefined ? {} : { spec }), ...more },
    'NetworkPolicy',
  );
}
const ingress = (...elements: unknown[]) => knp({ podSelector: {}, ingress: elements });
const from = (...peers: unknown[]) => ingress({ from: peers });
const port = (fields: unknown) => ingress({ ports: [fields] });
const found = ({ problems }: ParseResult) => problems.map(({ code, path }) => `${code} ${path}`);
const elements = (result: ParseResult) => {
  expect(result.problems).toEqual([]);
  return result.rules[0]?.elements ?? [];
};
const F0 = 'spec.ingress[0].from[0]';
const P0 = 'spec.ingress[0].ports[0]';

describe('the object', () => {
  const spec = { podSelector: {} };

  it('needs a name, a namespace and a spec', () => {
    expect(found(parsePolicy({ metadata: { namespace: 'a' }, spec }, 'NetworkPolicy'))).toEqual([
      'InvalidSpec metadata.name',
    ]);
    expect(found(parsePolicy({ metadata: { name: 'p' }, spec }, 'NetworkPolicy'))).toEqual([
      'InvalidSpec metadata.namespace',
    ]);
    expect(found(parsePolicy({ spec }, 'NetworkPolicy'))).toEqual([
      'InvalidSpec metadata.name',
      'InvalidSpec metadata.namespace',
    ]);
    expect(found(knp(undefined))).toEqual(['InvalidSpec spec']);
    expect(found(knp([]))).toEqual(['InvalidSpec spec']);
    expect(found(parsePolicy(7, 'NetworkPolicy'))).toEqual(['InvalidSpec $']);
  });

  it('is of networking.k8s.io/v1, and has no fields of other policies', () => {
    const header = { apiVersion: 'networking.k8s.io/v1', kind: 'NetworkPolicy', status: {} };
    expect(found(knp(spec, header))).toEqual([]);
    expect(found(knp(spec, { apiVersion: 'cilium.io/v2', kind: 'CiliumNetworkPolicy' }))).toEqual([
      'InvalidSpec kind',
      'InvalidSpec apiVersion',
    ]);
    expect(found(knp(spec, { specs: [spec] }))).toEqual(['InvalidSpec specs']);
    expect(found(knp({ ...spec, ingressDeny: [], endpointSelector: {} }))).toEqual([
      'InvalidSpec spec.ingressDeny',
      'InvalidSpec spec.endpointSelector',
    ]);
    expect(
      found(parsePolicy({ metadata: { name: 'p', namespace: 'a' }, ...header, spec }, 'CiliumNetworkPolicy')),
    ).toContain('InvalidSpec kind');
  });

  it('is one rule that denies by default and goes by its own name', () => {
    const metadata = { name: 'p', namespace: 'a', annotations: { 'policy.cilium.io/name': 'other' } };
    const { rules, problems } = knp(spec, { metadata });
    expect(problems).toEqual([]);
    expect(rules).toEqual([
      {
        subject: { requirements: [HERE] },
        elements: [{ direction: 'ingress', verdict: 'allow', peers: [], ports: 'any', path: 'spec.ingress' }],
        defaultDeny: { ingress: true, egress: false },
        has: { ingress: true, egress: false },
        labels: [],
        path: 'spec',
      },
    ]);
  });

  it('is rejected whole, with every problem told', () => {
    const result = knp({ podSelector: {}, ingress: [{ form: [] }, { ports: [{ port: 0 }] }], policyTypes: ['In'] });
    expect(allowing(result)).toEqual([]);
    expect(found(result)).toEqual([
      'InvalidSpec spec.policyTypes[0]',
      'InvalidSpec spec.ingress[0].form',
      'InvalidSpec spec.ingress[1].ports[0].port',
    ]);
    expect(result.problems[1]?.message).toContain('did you mean from?');
  });
});

describe('policyTypes', () => {
  const CLOSED = ['ingress', 'egress', 'spec.ingress nobody', 'spec.egress nobody'];
  const rule = [{ ports: [{ port: 80 }] }];
  const read = (spec: Json) => {
    const result = knp({ podSelector: {}, ...spec });
    const [one] = result.rules;
    if (one === undefined) return found(result);
    expect(one.defaultDeny).toEqual(one.has);
    const texts = one.elements.map(({ path, peers }) => `${path}${peers === 'any' ? '' : ' nobody'}`);
    return [...found(result), ...Object.entries(one.has).flatMap(([name, has]) => (has ? [name] : [])), ...texts];
  };

  it.each([
    [{}, ['ingress', 'spec.ingress nobody']],
    [{ policyTypes: null }, ['ingress', 'spec.ingress nobody']],
    [{ policyTypes: [], ingress: rule }, ['ingress', 'spec.ingress[0]']],
    [{ egress: rule }, ['ingress', 'egress', 'spec.ingress nobody', 'spec.egress[0]']],
    [{ egress: [] }, ['ingress', 'spec.ingress nobody']],
    [{ policyTypes: ['Ingress'], ingress: [] }, ['ingress', 'spec.ingress nobody']],
    [{ policyTypes: ['Ingress'], ingress: null }, ['ingress', 'spec.ingress nobody']],
    [{ policyTypes: ['Egress'] }, ['egress', 'spec.egress nobody']],
    [
      { policyTypes: ['Egress', 'Ingress', 'Egress'], ingress: rule },
      ['ingress', 'egress', 'spec.ingress[0]', 'spec.egress nobody'],
    ],
    [{ policyTypes: ['Egress'], ingress: rule }, ['Warning spec.ingress', 'egress', 'spec.egress nobody']],
    [{ policyTypes: ['Egress'], ingress: [] }, ['egress', 'spec.egress nobody']],
    [{ policyTypes: ['Ingress'], egress: rule, ingress: rule }, ['Warning spec.egress', 'ingress', 'spec.ingress[0]']],
    // What cannot be read may name a direction.
    [{ policyTypes: ['egress'] }, ['InvalidSpec spec.policyTypes[0]', ...CLOSED]],
    [{ policyTypes: ['Ingress', 'constructor'] }, ['InvalidSpec spec.policyTypes[1]', ...CLOSED]],
    [{ policyTypes: 'Ingress' }, ['InvalidSpec spec.policyTypes', ...CLOSED]],
    [{ policyTyps: ['Egress'] }, ['InvalidSpec spec.policyTyps', ...CLOSED]],
    [
      { policyTypes: ['Ingress'], egress: [{ ports: [{ port: -1 }] }] },
      ['InvalidSpec spec.egress[0].ports[0].port', 'Warning spec.egress', 'ingress', 'spec.ingress nobody'],
    ],
  ])('%j', (spec, expected) => {
    expect(read(spec)).toEqual(expected);
  });
});

describe('the subject', () => {
  const subject = (podSelector: unknown) => {
    const result = knp({ podSelector });
    return result.rules[0]?.subject.requirements ?? found(result);
  };

  it('is in the namespace, its keys are labels of Kubernetes', () => {
    expect(subject({ matchLabels: { app: 'web', 'x.org/y': '' } })).toEqual([
      { key: 'k8s:app', operator: 'In', values: ['web'] },
      HERE,
      { key: 'k8s:x.org/y', operator: 'In', values: [''] },
    ]);
    expect(subject(undefined)).toEqual([HERE]);
  });

  it.each([
    [null, ''],
    ['web', ''],
    [{ app: 'web' }, '.app'],
    [{ matchLabels: { 'k8s:app': 'web' } }, '.matchLabels["k8s:app"]'],
    [{ matchLabels: { 'reserved:host': '' } }, '.matchLabels["reserved:host"]'],
    [{ matchLabels: { app: 'a b' } }, '.matchLabels["app"]'],
    [{ matchExpressions: [{ key: 'app', operator: 'in', values: ['x'] }] }, '.matchExpressions[0].operator'],
    [{ matchExpressions: [{ key: 'app', operator: 'In' }] }, '.matchExpressions[0].values'],
    [{ matchExpressions: [{ key: 'app', operator: 'NotIn', values: [] }] }, '.matchExpressions[0].values'],
    [{ matchExpressions: [{ key: 'app', operator: 'Exists', values: ['x'] }] }, '.matchExpressions[0].values'],
    [{ matchLabels: { 'pod-template-hash': 'x' } }, ''],
    [{ matchLabels: { 'io.kubernetes.pod.namespace': 'b' } }, ''],
  ])('%j is invalid', (podSelector, where) => {
    expect(subject(podSelector)).toEqual([`InvalidSpec spec.podSelector${where}`]);
  });
});

describe('peers', () => {
  const selectors = (...peers: unknown[]) => {
    const [element] = elements(from(...peers));
    return element?.peers === 'any'
      ? 'any'
      : element?.peers.map((peer) => (peer.kind === 'endpoints' ? peer.selector.requirements : peer));
  };
  const APP = { key: 'k8s:app', operator: 'In', values: ['x'] };
  const pods = { matchLabels: { app: 'x' } };

  it('left out, null or empty are everyone; an element may be empty', () => {
    const any = { peers: 'any', ports: 'any' };
    expect(elements(ingress({}, { from: null, ports: null }, { from: [], ports: [] }))).toMatchObject([any, any, any]);
  });

  it('are pods of the own namespace, of namespaces by their labels, or both', () => {
    expect(selectors({ podSelector: {} })).toEqual([[HERE]]);
    expect(selectors({ podSelector: pods, namespaceSelector: null, ipBlock: null })).toEqual([[APP, HERE]]);
    expect(selectors({ namespaceSelector: {} })).toEqual([[SOME]]);
    expect(selectors({ namespaceSelector: { matchLabels: { team: 'red' } } })).toEqual([
      [{ key: TEAM, operator: 'In', values: ['red'] }],
    ]);
    expect(selectors({ podSelector: pods, namespaceSelector: {} })).toEqual([[APP, SOME]]);
    expect(selectors({ podSelector: pods, namespaceSelector: { matchLabels: { team: 'red' } } })).toEqual([
      [APP, { key: TEAM, operator: 'In', values: ['red'] }].sort((x, y) => (x.key < y.key ? -1 : 1)),
    ]);
  });

  it('of namespaces that are only excluded are pods still', () => {
    for (const [operator, values] of [
      ['NotIn', ['red']],
      ['DoesNotExist', []],
    ] as const) {
      const namespaceSelector = { matchExpressions: [{ key: 'team', operator, values }] };
      expect(selectors({ namespaceSelector })).toEqual([[{ key: TEAM, operator, values }, SOME]]);
    }
  });

  it('are addresses, canonical', () => {
    expect(selectors({ ipBlock: { cidr: '10.1.2.3/8', except: ['10.9.0.0/16', '10.1.0.0/16'] } })).toEqual([
      { kind: 'cidr', cidr: { cidr: '10.0.0.0/8', except: ['10.1.0.0/16', '10.9.0.0/16'] }, everyone: true },
    ]);
  });

  it('stand by the side of their direction', () => {
    const result = knp({ podSelector: {}, policyTypes: ['Egress'], egress: [{ to: [{ podSelector: {} }] }] });
    expect(elements(result)).toMatchObject([{ direction: 'egress', path: 'spec.egress[0]' }]);
    expect(found(ingress({ to: [] }))).toEqual(['InvalidSpec spec.ingress[0].to']);
    expect(found(knp({ podSelector: {}, egress: [{ from: [] }] }))).toEqual(['InvalidSpec spec.egress[0].from']);
  });

  it('that are empty select nobody, and say so', () => {
    const result = from({});
    expect(found(result)).toEqual([`Warning ${F0}`]);
    expect(result.rules[0]?.elements).toMatchObject([{ peers: [] }]);
  });

  it('of labels that identities lack select nobody: an exclusion would select too many', () => {
    const result = from(
      { podSelector: { matchExpressions: [{ key: 'pod-template-hash', operator: 'DoesNotExist' }] } },
      { podSelector: { matchLabels: { 'io.kubernetes.pod.namespace': 'b' } }, namespaceSelector: {} },
      { namespaceSelector: { matchLabels: { 'failure-domain.beta.kubernetes.io/zone': 'x' } } },
      { podSelector: pods },
    );
    expect(found(result)).toEqual([
      'UnsupportedField spec.ingress[0].from[0].podSelector',
      'UnsupportedField spec.ingress[0].from[1].podSelector',
      'UnsupportedField spec.ingress[0].from[2].namespaceSelector',
    ]);
    expect(result.rules[0]?.elements[0]?.peers).toHaveLength(1);
  });

  it.each([
    [null, ''],
    ['x', ''],
    [{ podSelector: {}, pods: {} }, '.pods'],
    [{ podSelector: 7 }, '.podSelector'],
    [{ namespaceSelector: [] }, '.namespaceSelector'],
    [{ namespaceSelector: { matchLabels: { 'k8s:team': 'red' } } }, '.namespaceSelector.matchLabels["k8s:team"]'],
    [{ ipBlock: { cidr: '10.0.0.0/8' }, podSelector: {} }, '.ipBlock'],
    [{ ipBlock: { cidr: '10.0.0.0/8' }, namespaceSelector: {} }, '.ipBlock'],
    [{ ipBlock: '10.0.0.0/8' }, '.ipBlock'],
    [{ ipBlock: {} }, '.ipBlock.cidr'],
    [{ ipBlock: { cidr: '10.0.0.0' } }, '.ipBlock.cidr'],
    [{ ipBlock: { cidr: '10.0.0.0/33' } }, '.ipBlock.cidr'],
    [{ ipBlock: { cidr: '::ffff:10.0.0.0/104' } }, '.ipBlock.cidr'],
    [{ ipBlock: { cidr: '10.0.0.0/8', except: '10.1.0.0/16' } }, '.ipBlock.except'],
    [{ ipBlock: { cidr: '10.0.0.0/8', except: ['11.0.0.0/16'] } }, '.ipBlock.except[0]'],
    [{ ipBlock: { cidr: '10.0.0.0/8', except: ['10.0.0.0/7'] } }, '.ipBlock.except[0]'],
    [{ ipBlock: { cidr: '10.0.0.0/8', except: ['2001:db8::/64'] } }, '.ipBlock.except[0]'],
    [{ ipBlock: { cidr: '10.0.0.0/8', excpet: [] } }, '.ipBlock.excpet'],
  ])('%j is invalid', (peer, where) => {
    const result = from(peer);
    expect(found(result)).toEqual([`InvalidSpec ${F0}${where}`]);
    expect(allowing(result)).toEqual([]);
  });
});

describe('ports', () => {
  const texts = (...ports: unknown[]) => {
    const written = elements(ingress({ ports }))[0]?.ports;
    return written === 'any'
      ? written
      : written?.map((one) =>
          'name' in one ? `${one.protocol} ${one.name}` : `${one.protocol} ${one.from}-${one.to}`,
        );
  };

  it('are numbers, ranges and names; TCP unless they say otherwise', () => {
    expect(texts({ port: 80 })).toEqual(['TCP 80-80']);
    expect(texts({ port: '80', protocol: null })).toEqual(['TCP 80-80']);
    expect(texts({ port: 53, protocol: 'UDP' }, { port: 9, protocol: 'SCTP' })).toEqual(['UDP 53-53', 'SCTP 9-9']);
    expect(texts({ port: 53, protocol: '' })).toEqual(['TCP 53-53', 'UDP 53-53', 'SCTP 53-53']);
    expect(texts({ protocol: 'UDP' })).toEqual(['UDP 0-65535']);
    expect(texts({ port: null })).toEqual(['TCP 0-65535']);
    expect(texts({ port: 80, endPort: 90 }, { port: 91 })).toEqual(['TCP 80-90', 'TCP 91-91']);
    expect(texts({ port: 80, endPort: 80 })).toEqual(['TCP 80-80']);
    expect(texts({ port: 'HTTP' }, { port: 'http' }, { port: 'dns', protocol: 'UDP' })).toEqual([
      'TCP HTTP',
      'TCP http',
      'UDP dns',
    ]);
  });

  it('a name is the own one of each pod', () => {
    const own = { protocol: 'TCP', name: 'http', each: true };
    expect(elements(port({ port: 'http' }))[0]?.ports).toEqual([own]);
  });

  it.each([
    [null, ''],
    [80, ''],
    [{ number: 80 }, '.number'],
    [{ port: 0 }, '.port'],
    [{ port: -1 }, '.port'],
    [{ port: 65536 }, '.port'],
    [{ port: 80.5 }, '.port'],
    [{ port: '0' }, '.port'],
    [{ port: '-80' }, '.port'],
    [{ port: '080' }, '.port'],
    [{ port: '99999' }, '.port'],
    [{ port: '' }, '.port'],
    [{ port: 'no_name' }, '.port'],
    [{ port: 'a--b' }, '.port'],
    [{ port: 'sixteen-letters-' }, '.port'],
    [{ port: true }, '.port'],
    [{ port: 80, endPort: 79 }, '.endPort'],
    [{ port: 80, endPort: '90' }, '.endPort'],
    [{ port: 80, endPort: 65536 }, '.endPort'],
    [{ port: 80, endPort: 0 }, '.endPort'],
    [{ port: 'http', endPort: 90 }, '.endPort'],
    [{ endPort: 90 }, '.endPort'],
    [{ port: 80, protocol: 'tcp' }, '.protocol'],
    [{ port: 80, protocol: 'ANY' }, '.protocol'],
    [{ port: 80, protocol: 'ICMP' }, '.protocol'],
    [{ port: 80, protocol: 6 }, '.protocol'],
  ])('%j is invalid', (fields, where) => {
    const result = port(fields);
    expect(found(result)).toEqual([`InvalidSpec ${P0}${where}`]);
    expect(allowing(result)).toEqual([]);
  });
});

describe('any NetworkPolicy', () => {
  it('is allows only, deterministic, and resolves to plain JSON that carries its default deny', () => {
    fc.assert(
      fc.property(networkPolicyArbitrary, ({ object }) => {
        const { rules, problems } = parsePolicy(object, 'NetworkPolicy');
        expect(problems.filter(({ code }) => code !== 'Warning')).toEqual([]);
        expect(parsePolicy(JSON.parse(JSON.stringify(object)), 'NetworkPolicy').rules).toEqual(rules);
        const { policyTypes } = object.spec as { policyTypes: string[] };
        const resolved = resolve(rules, { cookieOf: () => 1 }).rules;
        expect(JSON.parse(JSON.stringify(resolved))).toEqual(resolved);
        expect(new Set(resolved.map(({ direction }) => direction))).toEqual(
          new Set(policyTypes.map((type) => type.toLowerCase())),
        );
        for (const rule of resolved) expect(rule).toMatchObject({ verdict: 'allow', defaultDeny: true });
      }),
      { numRuns: 200 },
    );
  });

  it('never throws, whatever the JSON', () => {
    fc.assert(
      fc.property(fc.jsonValue(), fc.jsonValue(), (podSelector, anything) => {
        for (const spec of [anything, { podSelector, ingress: anything }, { podSelector: {}, egress: [anything] }]) {
          const { rules, refused, problems } = knp(spec);
          expect(rules).toHaveLength(refused ? 0 : 1);
          if (refused) expect(problems.map(({ code }) => code)).toContain('InvalidSpec');
        }
        for (const item of [{ from: [anything] }, { ports: [anything] }]) expect(ingress(item).problems).toBeDefined();
      }),
      { numRuns: 200 },
    );
  });
});
