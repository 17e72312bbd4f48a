/** What the matrix plays: rows of the worked verdicts that a real packet can show, and random policies. */
import { type PolicyObject, policiesArbitrary } from '@weir/policy/testing/worlds.ts';
import fc from 'fast-check';

const web = { matchLabels: { app: 'web' } };
const cnp = (spec: object, namespace = 'a'): PolicyObject => ({
  kind: 'CiliumNetworkPolicy',
  object: { apiVersion: 'cilium.io/v2', kind: 'CiliumNetworkPolicy', metadata: { name: 'p', namespace }, spec },
});
const ccnp = (spec: object): PolicyObject => ({
  kind: 'CiliumClusterwideNetworkPolicy',
  object: { apiVersion: 'cilium.io/v2', kind: 'CiliumClusterwideNetworkPolicy', metadata: { name: 'p' }, spec },
});
const tcp = (port: string, endPort?: number) => ({
  ports: [{ port, protocol: 'TCP', ...(endPort === undefined ? {} : { endPort }) }],
});

/** Rows of the worked verdicts that a real packet can show. */
export const CASES: readonly (readonly [string, readonly PolicyObject[]])[] = [
  ['no policy', []],
  ['ingress: [{}] denies all', [cnp({ endpointSelector: web, ingress: [{}] })]],
  ['fromEndpoints [{}] is the own namespace', [cnp({ endpointSelector: web, ingress: [{ fromEndpoints: [{}] }] })]],
  ['clusterwide fromEndpoints [{}] is all pods', [ccnp({ endpointSelector: {}, ingress: [{ fromEndpoints: [{}] }] })]],
  ['ports without peers', [cnp({ endpointSelector: web, ingress: [{ toPorts: [tcp('80')] }] })]],
  [
    'another namespace by its label',
    [
      cnp({
        endpointSelector: web,
        ingress: [{ fromEndpoints: [{ matchLabels: { 'io.cilium.k8s.namespace.labels.team': 'blue' } }] }],
      }),
    ],
  ],
  [
    'policies add up',
    [
      cnp({ endpointSelector: web, ingress: [{ fromEndpoints: [{ matchLabels: { app: 'api' } }] }] }),
      cnp({ endpointSelector: web, ingress: [{ fromEntities: ['world'], toPorts: [tcp('81')] }] }),
    ],
  ],
  [
    'entities in both directions',
    [
      cnp({
        endpointSelector: {},
        ingress: [{ fromEntities: ['host', 'world'] }],
        egress: [{ toEntities: ['cluster'] }],
      }),
    ],
  ],
  ['remote-node', [cnp({ endpointSelector: {}, ingress: [{ fromEntities: ['remote-node'] }] })]],
  [
    'CIDR with except, and a second element inside the exception',
    [
      cnp({
        endpointSelector: web,
        ingress: [{ fromCIDRSet: [{ cidr: '10.0.0.0/8', except: ['10.1.0.0/16'] }] }],
        egress: [
          { toCIDRSet: [{ cidr: '10.0.0.0/8', except: ['10.1.0.0/16'] }] },
          { toCIDR: ['10.1.2.0/24'], toPorts: [tcp('80')] },
        ],
      }),
    ],
  ],
  [
    'a deny of a wide CIDR beats an allow of one address',
    [
      cnp({
        endpointSelector: {},
        egress: [{ toCIDR: ['10.1.2.3/32', '203.0.113.9/32'] }],
        egressDeny: [{ toCIDR: ['10.0.0.0/8'] }],
      }),
    ],
  ],
  [
    'a deny of a wide CIDR beats narrower allows of other policies, of everything, and without default deny',
    [
      ccnp({
        endpointSelector: {},
        egress: [{ toEntities: ['all'] }],
        egressDeny: [{ toCIDRSet: [{ cidr: '10.0.0.0/8' }] }],
      }),
      cnp({
        endpointSelector: {},
        egress: [{ toCIDRSet: [{ cidr: '10.1.2.3/32' }] }, { toEntities: ['all'] }],
        enableDefaultDeny: { egress: false },
      }),
      cnp({ endpointSelector: web, egress: [{ toCIDR: ['10.1.2.0/24'], toPorts: [tcp('80')] }] }),
    ],
  ],
  [
    'CIDRs of IPv6, with an exception, a deny and one address',
    [
      cnp({
        endpointSelector: web,
        ingress: [{ fromCIDRSet: [{ cidr: '2001:db8::/32', except: ['2001:db8:1::/48'] }], toPorts: [tcp('80')] }],
        egress: [{ toCIDRSet: [{ cidr: '2001:db8::/32', except: ['2001:db8::8/126'] }] }],
      }),
      cnp({ endpointSelector: { matchLabels: { app: 'api' } }, egress: [{ toCIDR: ['2001:db8::9/128'] }] }),
      cnp({
        endpointSelector: { matchLabels: { app: 'db' } },
        egress: [{ toEntities: ['all'] }],
        egressDeny: [{ toCIDR: ['2001:db8::/64'] }],
      }),
    ],
  ],
  [
    'the whole of one family is the world of that family',
    [
      cnp({ endpointSelector: web, ingress: [{ fromCIDR: ['::/0'] }], egress: [{ toCIDR: ['0.0.0.0/0'] }] }),
      cnp({
        endpointSelector: { matchLabels: { app: 'api' } },
        ingress: [{ fromCIDR: ['0.0.0.0/0'] }],
        egress: [{ toCIDR: ['::/0'] }],
      }),
    ],
  ],
  [
    'a deny carves a hole in a range',
    [
      cnp({
        endpointSelector: web,
        ingress: [{ toPorts: [tcp('80', 8090)] }],
        ingressDeny: [{ toPorts: [tcp('81')] }],
      }),
    ],
  ],
  [
    'deny without default deny',
    [
      cnp({
        endpointSelector: web,
        enableDefaultDeny: { ingress: false },
        ingressDeny: [{ fromEndpoints: [{ matchLabels: { app: 'api' } }] }],
      }),
    ],
  ],
  [
    'source and destination each have their say',
    [
      cnp({
        endpointSelector: web,
        egress: [{ toEndpoints: [{ matchLabels: { app: 'db' } }], toPorts: [tcp('80', 81)] }],
      }),
      cnp({
        endpointSelector: { matchLabels: { app: 'db' } },
        ingress: [{ fromEndpoints: [{ matchLabels: { app: 'web' } }], toPorts: [tcp('81', 8080)] }],
      }),
    ],
  ],
  [
    'host denied beats the localhost rule',
    [cnp({ endpointSelector: web, ingress: [{ fromEntities: ['all'] }], ingressDeny: [{ fromEntities: ['host'] }] })],
  ],
];

/** Fixed, so that a failing run can be repeated; another seed is another matrix. */
export const SEED = 20_261_121;

export const RANDOM: readonly (readonly [number, readonly PolicyObject[]])[] = fc
  .sample(policiesArbitrary, { numRuns: 40, seed: SEED })
  .filter((policies) => policies.length > 0)
  .slice(0, 12)
  .map((policies, index) => [index, policies] as const);
