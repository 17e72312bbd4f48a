/** Policies that somebody wrote to hurt: as deep and as wide as an API server takes, in every field. */

import { describe, expect, it } from '@jest/globals';
import { LabelError, SelectorError } from '@weir/labels';
import { AddressError, PrefixError } from '@weir/net';
import { nested, pathsIn, withAt } from '../../test/hostile.ts';
import { parsePolicy } from './parse.ts';

const PEERS = {
  fromEndpoints: [{ matchLabels: { a: 'b' }, matchExpressions: [{ key: 'a', operator: 'In', values: ['b'] }] }],
  fromCIDR: ['192.0.2.1/32'],
  fromCIDRSet: [{ cidr: '10.0.0.0/8', except: ['10.1.0.0/16'], cidrGroupRef: 'g' }],
  fromEntities: ['world'],
  fromNodes: [{}],
  fromGroups: [{}],
  fromRequires: [{}],
};
const PORTS = [
  {
    ports: [{ port: '80', protocol: 'TCP', endPort: 90 }],
    rules: { http: [{ method: 'GET', headers: ['a'] }], dns: [{}] },
    serverNames: ['a'],
    terminatingTLS: {},
  },
];
const CILIUM = {
  apiVersion: 'cilium.io/v2',
  metadata: { name: 'p', namespace: 'a', labels: {} },
  spec: {
    endpointSelector: { matchLabels: { a: 'b' }, matchExpressions: [{ key: 'a', operator: 'In', values: ['b'] }] },
    description: 'x',
    labels: [{ key: 'a', value: 'b', source: 'c' }],
    enableDefaultDeny: { ingress: true },
    ingress: [{ ...PEERS, toPorts: PORTS, icmps: [{ fields: [{ type: 8 }] }], authentication: { mode: 'required' } }],
    egress: [{ toServices: [{ k8sService: { serviceName: 's', namespace: 'a' } }], toFQDNs: [{ matchName: 'a' }] }],
    ingressDeny: [{ fromCIDR: ['192.0.2.1/32'] }],
  },
  specs: [{ endpointSelector: {} }],
};
const NETWORK = {
  apiVersion: 'networking.k8s.io/v1',
  metadata: { name: 'p', namespace: 'a' },
  spec: {
    podSelector: { matchLabels: { a: 'b' } },
    policyTypes: ['Ingress'],
    ingress: [
      {
        from: [
          { podSelector: {}, namespaceSelector: { matchExpressions: [{ key: 'a', operator: 'Exists' }] } },
          { ipBlock: { cidr: '10.0.0.0/8', except: ['10.1.0.0/16'] } },
        ],
        ports: [{ port: 80, protocol: 'TCP', endPort: 90 }],
      },
    ],
  },
};

const WIDTH = 5000;
const HOSTILE: readonly (readonly [string, unknown])[] = [
  ['10,000 levels', nested(10_000)],
  ['a wide list', Array.from({ length: WIDTH }, (_, at) => `x${at}`)],
  ['a wide list of objects', Array.from({ length: WIDTH }, (_, at) => ({ [`x${at}`]: at }))],
  ['a wide object', Object.fromEntries(Array.from({ length: WIDTH }, (_, at) => [`k${at}`, 1]))],
  ['a long text', 'x'.repeat(1_000_000)],
  ['a long key', { ['x'.repeat(1_000_000)]: 1 }],
];

/** All that may be told of one policy: bytes of JSON. */
const MOST_BYTES = 150_000;

describe.each([
  ['CiliumNetworkPolicy', CILIUM],
  ['NetworkPolicy', NETWORK],
] as const)('a %s', (kind, sample) => {
  it.each(HOSTILE)('with %s in any field: it is read to its end, and what is told of it is bounded', (_, value) => {
    for (const path of pathsIn(sample)) {
      const { problems } = parsePolicy(withAt(sample, path, value), kind);
      const bytes = JSON.stringify(problems).length;
      expect([path.join('.'), bytes < MOST_BYTES ? 'bounded' : bytes]).toEqual([path.join('.'), 'bounded']);
    }
  });
});

it('says how many problems it does not show, and takes each for what it is', () => {
  const wide = Object.fromEntries(Array.from({ length: 200 }, (_, at) => [`k${at}`, 1]));
  const { problems } = parsePolicy(withAt(CILIUM, ['spec', 'labels', '0'], wide), 'CiliumNetworkPolicy');
  expect(problems.at(-1)).toEqual({
    code: 'InvalidSpec',
    path: '$',
    message: '159 more problems are not shown',
    count: 159,
  });
  const warned = Array.from({ length: 100 }, () => ({ matchLabels: { 'pod-template-hash': 'x' } }));
  const only = { endpointSelector: {}, ingressDeny: [{ fromEndpoints: warned }, { fromEndpoints: [5] }] };
  const read = parsePolicy({ ...CILIUM, spec: only, specs: undefined }, 'CiliumNetworkPolicy');
  expect(read.rules[0]?.elements[0]?.peers).toHaveLength(100);
  expect(read.problems.some(({ code }) => code === 'InvalidSpec')).toBe(true);
});

/** How many errors `fn` makes that say what is wrong with a text or a selector. */
function errorsMadeBy(fn: () => void): number {
  const types = [AddressError, PrefixError, LabelError, SelectorError];
  let made = 0;
  // A new one sets its name.
  const set = (): void => {
    made += 1;
  };
  for (const { prototype } of types) Object.defineProperty(prototype, 'name', { configurable: true, set });
  try {
    fn();
  } finally {
    for (const { prototype } of types) Reflect.deleteProperty(prototype, 'name');
  }
  return made;
}

it('makes no error, with a stack of calls, of each CIDR and of each selector that is none', () => {
  expect(errorsMadeBy(() => void new LabelError('x', 'is none'))).toBe(1);
  const bad = ['x', '1.2.3', '1.2.3.4/33', '::g/1', '10.0.0.0'];
  const many = Array.from({ length: 100 }, () => bad).flat();
  const selectors = Array.from({ length: 100 }, (_, n) => ({ matchLabels: { [`a b${n}`]: 'x', 'a/b/c': 'x' } }));
  const egress = [{ toCIDR: many }, { toCIDRSet: [{ cidr: '10.0.0.0/8', except: many }] }, { toEndpoints: selectors }];
  const read = () =>
    parsePolicy({ ...CILIUM, spec: { endpointSelector: {}, egress }, specs: undefined }, 'CiliumNetworkPolicy');
  // Of toCIDR an address without a length is right.
  expect(read().problems.reduce((sum, { count = 1 }) => sum + count, 0)).toBe(1_100);
  expect(errorsMadeBy(read)).toBe(0);
});

it('reads a selector that it repeats once, and says what is wrong with it, or may surprise, of each', () => {
  const peers = Array.from({ length: 10 }, () => ({ matchLabels: { a: 'b' } }));
  const odd = Array.from({ length: 3 }, () => ({ matchLabels: { 'pod-template-hash': 'x' } }));
  const spec = { endpointSelector: {}, ingressDeny: [{ fromEndpoints: peers }, { fromEndpoints: [...peers, ...odd] }] };
  const { problems, rules } = parsePolicy({ ...CILIUM, spec, specs: [spec] }, 'CiliumNetworkPolicy');
  const read = rules.flatMap(({ elements }) => elements.flatMap(({ peers: found }) => (found === 'any' ? [] : found)));
  expect([read.length, new Set(read).size]).toEqual([46, 1 + 6]);
  expect(problems.map(({ path }) => path)).toEqual(
    ['spec', 'specs[0]'].flatMap((where) => [10, 11, 12].map((n) => `${where}.ingressDeny[1].fromEndpoints[${n}]`)),
  );
});

it('counts what is wrong with a selector in full, however much of it the selector tells', () => {
  const wide = Object.fromEntries(Array.from({ length: 200 }, (_, at) => [`k${at}`, 1]));
  const read = (selectors: number) => {
    const fromEndpoints = Array.from({ length: selectors }, () => ({ matchLabels: wide }));
    const spec = { endpointSelector: {}, ingress: [{ fromEndpoints }] };
    return parsePolicy({ ...CILIUM, spec, specs: undefined }, 'CiliumNetworkPolicy').problems;
  };
  const counts = [1, 2].map((selectors) => read(selectors).reduce((sum, { count = 1 }) => sum + count, 0));
  expect(counts).toEqual([200, 400]);
});

it('what is nested too deep is named by its place', () => {
  const { problems } = parsePolicy(withAt(CILIUM, ['spec', 'unknown'], nested(500)), 'CiliumNetworkPolicy');
  expect(problems).toEqual([
    {
      code: 'InvalidSpec',
      path: expect.stringMatching(/^spec\.unknown/),
      message: 'nested deeper than 100 levels: no field of a policy is',
    },
  ]);
});
