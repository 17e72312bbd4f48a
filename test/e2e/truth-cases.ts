/**
 * Policy sets of the truth table: CiliumNetworkPolicies, CiliumClusterwideNetworkPolicies and NetworkPolicies, alone and together, on
 * three namespaces of three pods with two ports each. Pods a, b, c carry `pod: a`...; namespaces x, y, z carry `team: red`, `blue`,
 * `blue`. Every pod names TCP 80 `web` and TCP 81 `alt`, but x/c the other way round.
 */
export const NAMESPACES = { x: { team: 'red' }, y: { team: 'blue' }, z: { team: 'blue' } } as const;

const pod = (...names: readonly string[]) => ({ matchExpressions: [{ key: 'pod', operator: 'In', values: names }] });
const team = (name: string) => ({ matchLabels: { team: name } });
const named = (kind: string, version: string, namespace: string | undefined, spec: object) => ({
  apiVersion: version,
  kind,
  metadata: { name: 'p', ...(namespace === undefined ? {} : { namespace }) },
  spec,
});
const knp = (namespace: string, spec: object) => named('NetworkPolicy', 'networking.k8s.io/v1', namespace, spec);
const cnp = (namespace: string, spec: object) => named('CiliumNetworkPolicy', 'cilium.io/v2', namespace, spec);
const ccnp = (spec: object) => named('CiliumClusterwideNetworkPolicy', 'cilium.io/v2', undefined, spec);
const inNamespace = (namespace: string, labels: object = {}) => ({
  matchLabels: { 'k8s:io.kubernetes.pod.namespace': namespace, ...labels },
});
const tcp = (port: string) => [{ ports: [{ port, protocol: 'TCP' }] }];

export const TRUTH_CASES: readonly (readonly [string, readonly object[]])[] = [
  ['no policy', []],
  ['NetworkPolicy: default deny of ingress', [knp('x', { podSelector: {} })]],
  [
    'NetworkPolicy: pods of the own namespace on one port',
    [
      knp('x', {
        podSelector: pod('a'),
        ingress: [{ from: [{ podSelector: pod('b') }], ports: [{ port: 80 }] }],
      }),
    ],
  ],
  [
    'NetworkPolicy: all of some namespaces, any port of UDP and one of TCP',
    [
      knp('x', {
        podSelector: {},
        ingress: [{ from: [{ namespaceSelector: team('blue') }], ports: [{ protocol: 'UDP' }, { port: 81 }] }],
      }),
    ],
  ],
  [
    'NetworkPolicy: namespace and pod selectors together, and apart',
    [
      knp('x', {
        podSelector: pod('a'),
        ingress: [{ from: [{ namespaceSelector: team('blue'), podSelector: pod('b') }] }],
      }),
      knp('y', {
        podSelector: pod('a'),
        ingress: [{ from: [{ namespaceSelector: team('red') }, { podSelector: pod('b') }] }],
      }),
    ],
  ],
  [
    'NetworkPolicy: a port by its name is the own number of each pod',
    [knp('x', { podSelector: {}, ingress: [{ ports: [{ port: 'web' }] }] })],
  ],
  [
    'NetworkPolicy: a range of ports',
    [knp('z', { podSelector: {}, ingress: [{ ports: [{ port: 80, endPort: 81 }] }] })],
  ],
  [
    'NetworkPolicy: default deny of egress, and one exception',
    [
      knp('y', {
        podSelector: {},
        policyTypes: ['Egress'],
        egress: [
          {
            to: [{ namespaceSelector: team('blue'), podSelector: pod('b') }],
            ports: [{ protocol: 'UDP', port: 80 }],
          },
        ],
      }),
    ],
  ],
  [
    'NetworkPolicy: egress to a port by its name is the number of each destination',
    [knp('z', { podSelector: pod('a', 'b'), policyTypes: ['Egress'], egress: [{ ports: [{ port: 'alt' }] }] })],
  ],
  [
    'NetworkPolicy: an address block takes in whoever has an address in it',
    [knp('x', { podSelector: {}, ingress: [{ from: [{ ipBlock: { cidr: '0.0.0.0/0' } }] }] })],
  ],
  [
    'NetworkPolicy: an address block but for an exception, and a port',
    [
      knp('x', {
        podSelector: {},
        policyTypes: ['Ingress', 'Egress'],
        ingress: [{ from: [{ ipBlock: { cidr: '0.0.0.0/0' } }], ports: [{ port: 81 }] }],
        egress: [{ to: [{ ipBlock: { cidr: '0.0.0.0/0', except: ['10.0.0.0/9', '128.0.0.0/1'] } }] }],
      }),
    ],
  ],
  [
    'a deny beats an address block, and a CIDR of a CiliumNetworkPolicy takes in no pod',
    [
      knp('x', { podSelector: {}, ingress: [{ from: [{ ipBlock: { cidr: '0.0.0.0/0' } }] }] }),
      cnp('x', {
        endpointSelector: {},
        ingressDeny: [{ fromEndpoints: [{ matchLabels: { pod: 'a' } }] }, { fromCIDR: ['0.0.0.0/0'] }],
      }),
    ],
  ],
  ['NetworkPolicy: ingress [{}] allows everybody', [knp('x', { podSelector: {}, ingress: [{}] })]],
  ['CiliumNetworkPolicy: ingress [{}] allows nobody', [cnp('x', { endpointSelector: {}, ingress: [{}] })]],
  ['NetworkPolicy: both directions shut', [knp('y', { podSelector: {}, policyTypes: ['Ingress', 'Egress'] })]],
  [
    'NetworkPolicies add up, whatever their number',
    [
      knp('x', { podSelector: {} }),
      knp('x', { podSelector: pod('a'), ingress: [{ from: [{ podSelector: pod('b') }] }] }),
      knp('x', { podSelector: pod('a'), ingress: [{ from: [{ namespaceSelector: {} }], ports: [{ port: 81 }] }] }),
    ],
  ],
  [
    'selectors that exclude',
    [
      knp('x', {
        podSelector: { matchExpressions: [{ key: 'pod', operator: 'NotIn', values: ['c'] }] },
        ingress: [
          {
            from: [
              {
                namespaceSelector: {
                  matchExpressions: [{ key: 'kubernetes.io/metadata.name', operator: 'NotIn', values: ['y'] }],
                },
              },
            ],
          },
        ],
      }),
    ],
  ],
  [
    'a clusterwide baseline, and an exception of one namespace',
    [
      ccnp({ endpointSelector: {}, ingress: [{ fromEndpoints: [inNamespace('x')] }] }),
      cnp('y', { endpointSelector: pod('a'), ingress: [{ fromEndpoints: [inNamespace('z')], toPorts: tcp('80') }] }),
    ],
  ],
  [
    'a CiliumNetworkPolicy and a NetworkPolicy on one pod add up',
    [
      knp('x', { podSelector: pod('a'), ingress: [{ from: [{ podSelector: pod('b') }], ports: [{ port: 80 }] }] }),
      cnp('x', { endpointSelector: pod('a'), ingress: [{ fromEndpoints: [pod('c')], toPorts: tcp('81') }] }),
    ],
  ],
  [
    'a deny of a CiliumNetworkPolicy beats what a NetworkPolicy allows',
    [
      knp('x', { podSelector: {}, ingress: [{ from: [{ namespaceSelector: {} }] }] }),
      cnp('x', { endpointSelector: {}, ingressDeny: [{ fromEndpoints: [inNamespace('y')], toPorts: tcp('80') }] }),
    ],
  ],
  [
    'source and destination each have their say',
    [
      knp('z', { podSelector: pod('a'), ingress: [{ ports: [{ port: 80 }] }] }),
      cnp('y', { endpointSelector: {}, egress: [{ toEndpoints: [inNamespace('z')], toPorts: tcp('81') }] }),
    ],
  ],
  [
    'a CiliumNetworkPolicy by port names, in both directions',
    [
      cnp('x', { endpointSelector: {}, ingress: [{ fromEndpoints: [{}], toPorts: tcp('web') }] }),
      cnp('y', { endpointSelector: pod('a'), egress: [{ toEndpoints: [inNamespace('x')], toPorts: tcp('alt') }] }),
    ],
  ],
  [
    'clusterwide: one team may not reach the other, everything else stays open',
    [
      ccnp({
        endpointSelector: { matchLabels: { 'io.cilium.k8s.namespace.labels.team': 'blue' } },
        enableDefaultDeny: { egress: false },
        egressDeny: [{ toEndpoints: [{ matchLabels: { 'k8s:io.kubernetes.pod.namespace': 'x' } }] }],
      }),
    ],
  ],
  [
    'all three kinds together',
    [
      ccnp({ endpointSelector: {}, ingress: [{ fromEntities: ['cluster'], toPorts: tcp('80') }] }),
      cnp('x', { endpointSelector: pod('a'), ingressDeny: [{ fromEndpoints: [inNamespace('z', { pod: 'c' })] }] }),
      knp('z', {
        podSelector: {},
        policyTypes: ['Egress'],
        egress: [{ to: [{ namespaceSelector: {} }], ports: [{ port: 80 }, { protocol: 'UDP', port: 81 }] }],
      }),
    ],
  ],
  [
    'what asks for a proxy outranks a plain allow of all ports, and is widened by one of the same port',
    [
      cnp('x', {
        endpointSelector: {},
        ingress: [
          { fromEndpoints: [{}], toPorts: [{ ports: [{ port: '80', protocol: 'TCP' }], rules: { http: [{}] } }] },
          { fromEndpoints: [{}] },
        ],
      }),
      cnp('y', {
        endpointSelector: {},
        ingress: [
          { fromEndpoints: [{}], toPorts: [{ ports: [{ port: '80', protocol: 'TCP' }], serverNames: ['x.example'] }] },
          { fromEndpoints: [{}], toPorts: tcp('80') },
        ],
      }),
    ],
  ],
  [
    'what asks for authentication outranks every allow',
    [
      cnp('x', {
        endpointSelector: {},
        egress: [
          { toEndpoints: [inNamespace('y')], authentication: { mode: 'required' } },
          { toEntities: ['all'], toPorts: tcp('80') },
        ],
      }),
    ],
  ],
];
