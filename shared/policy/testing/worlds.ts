/** fast-check arbitraries: a small fixed world, and policies (whole Kubernetes objects of the supported language) about it. */
import { podIdentityLabels } from '@weir/labels';
import fc from 'fast-check';
import type { OracleEndpoint, OraclePeer, OracleWorld } from '../oracle.ts';
import type { PolicyKind } from '../types.ts';

type Labels = Record<string, string>;

function pod(
  namespace: string,
  team: string,
  name: string,
  labels: Labels,
  address: string,
  node: string,
  namedPorts: OracleEndpoint['namedPorts'] = [],
): OracleEndpoint {
  return {
    name: `${namespace}/${name}`,
    labels: podIdentityLabels({ namespace, namespaceLabels: { team }, podLabels: labels, serviceAccount: 'default' }),
    addresses: [address],
    node,
    namedPorts,
  };
}

const tcp = (name: string, port: number) => ({ name, port, protocol: 'TCP' as const });
const udp = (name: string, port: number) => ({ name, port, protocol: 'UDP' as const });

/** Outside, in and between the prefixes of `prefixArbitrary`; of both families. */
export const OUTSIDE_ADDRESSES: readonly string[] = [
  ...['203.0.113.9', '10.1.2.3', '10.1.2.4', '10.1.200.1', '10.2.0.1', '10.244.0.99'],
  ...['2001:db8::9', '2001:db8:1:2::3', '2001:db8:1:2::4', '2001:db8:1:200::1', '2001:db8:2::1', 'fd00::1'],
];
const API_SERVERS = ['10.1.9.9', '2001:db8:1::9'];

/** Two namespaces, six pods (two of one identity, which give `http` different numbers), three nodes (n3 runs the API server), addresses inside and outside of the usual test prefixes. */
export const SMALL_WORLD: OracleWorld = {
  endpoints: [
    pod('a', 'red', 'web', { app: 'web', tier: 'front' }, '10.244.0.6', 'n1', [tcp('http', 80)]),
    pod('a', 'red', 'api', { app: 'api', tier: 'back' }, '10.244.0.7', 'n1', [tcp('http', 8080), udp('dns', 53)]),
    pod('a', 'red', 'db', { app: 'db', tier: 'back' }, '10.244.0.8', 'n2'),
    pod('b', 'blue', 'web', { app: 'web', tier: 'front' }, '10.244.1.6', 'n2', [tcp('http', 8080), tcp('dns', 53)]),
    pod('b', 'blue', 'cli', { app: 'cli', host: 'x' }, '10.244.1.9', 'n2', [tcp('http', 80), udp('dns', 53)]),
    pod('b', 'blue', 'cli-2', { app: 'cli', host: 'x' }, '10.244.1.10', 'n3', [tcp('http', 81), udp('dns', 53)]),
  ],
  nodes: [
    { name: 'n1', addresses: ['10.9.0.1'], labels: { zone: 'a' } },
    { name: 'n2', addresses: ['10.9.0.2'], labels: { zone: 'b', app: 'web' } },
    { name: 'n3', addresses: ['10.9.0.3'], labels: { zone: 'b', 'role/control': '' }, kubeApiserver: true },
  ],
  externalApiServers: API_SERVERS,
};

/** Every kind of peer of the small world. Outside addresses fall in and between the prefixes of `prefixArbitrary`. */
export const SMALL_WORLD_PEERS: readonly OraclePeer[] = [
  ...SMALL_WORLD.endpoints.map((endpoint): OraclePeer => ({ kind: 'endpoint', endpoint })),
  ...SMALL_WORLD.nodes.map((node): OraclePeer => ({ kind: 'node', node })),
  ...OUTSIDE_ADDRESSES.map((address): OraclePeer => ({ kind: 'outside', address })),
  ...API_SERVERS.map((address): OraclePeer => ({ kind: 'outside', address, kubeApiserver: true })),
  { kind: 'reserved', name: 'health' },
  { kind: 'reserved', name: 'init' },
  { kind: 'reserved', name: 'ingress' },
  { kind: 'reserved', name: 'unmanaged' },
  { kind: 'unknown' },
];

const NESTED = ['10.0.0.0/8', '10.1.0.0/16', '10.1.2.0/24', '10.1.2.3/32'];
const NESTED6 = ['2001:db8::/32', '2001:db8:1::/48', '2001:db8:1:2::/64', '2001:db8:1:2::3/128'];
/** Of both families. */
export const PREFIXES: readonly string[] = [
  ...['0.0.0.0/0', ...NESTED, '10.2.0.0/16', '10.244.0.0/16', '203.0.113.0/24'],
  ...['::/0', ...NESTED6, '2001:db8:2::/48', 'fd00:244::/48'],
];
const EXCEPTS: Record<string, readonly string[]> = {
  '0.0.0.0/0': [...NESTED, '203.0.113.0/24'],
  '10.0.0.0/8': [...NESTED.slice(1), '10.2.0.0/16'],
  '10.1.0.0/16': NESTED.slice(2),
  '::/0': [...NESTED6, 'fd00:244::/48'],
  '2001:db8::/32': [...NESTED6.slice(1), '2001:db8:2::/48'],
  '2001:db8:1::/48': NESTED6.slice(2),
};

export const prefixArbitrary: fc.Arbitrary<string> = fc.constantFrom(...PREFIXES);

const expressionArbitrary = fc.oneof(
  fc.record({
    key: fc.constantFrom('app', 'k8s:tier', 'any:app', 'host'),
    operator: fc.constantFrom('In', 'NotIn'),
    values: fc.uniqueArray(fc.constantFrom('web', 'api', 'db', 'front', 'back', 'x'), { minLength: 1, maxLength: 2 }),
  }),
  fc.record({ key: fc.constantFrom('tier', 'host', 'k8s:app'), operator: fc.constantFrom('Exists', 'DoesNotExist') }),
);

/** Selectors without namespace keys: subjects and peers. */
export const selectorArbitrary = fc.oneof(
  { weight: 1, arbitrary: fc.constant({}) },
  {
    weight: 3,
    arbitrary: fc.record({
      matchLabels: fc.constantFrom<Labels[]>({ app: 'web' }, { 'k8s:app': 'api' }, { tier: 'back' }),
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({ matchExpressions: fc.array(expressionArbitrary, { minLength: 1, maxLength: 2 }) }),
  },
);

const NS = 'io.kubernetes.pod.namespace';
const NS_TEAM = 'k8s:io.cilium.k8s.namespace.labels.team';

/** Selectors of peers: also across namespaces, also negative ones, also reserved labels. */
export const peerSelectorArbitrary = fc.oneof(
  { weight: 4, arbitrary: selectorArbitrary },
  {
    weight: 3,
    arbitrary: fc.constantFrom(
      { matchLabels: { [`k8s:${NS}`]: 'b' } },
      { matchLabels: { app: 'web', [NS]: 'b' } },
      { matchExpressions: [{ key: `k8s:${NS}`, operator: 'Exists' }] },
      { matchExpressions: [{ key: NS, operator: 'NotIn', values: ['a'] }] },
      { matchLabels: { [NS_TEAM]: 'blue' } },
      { matchExpressions: [{ key: NS_TEAM, operator: 'NotIn', values: ['red'] }] },
      { matchExpressions: [{ key: NS_TEAM, operator: 'DoesNotExist' }] },
      { matchLabels: { 'reserved:host': '' } },
      { matchExpressions: [{ key: 'reserved:remote-node', operator: 'Exists' }] },
    ),
  },
);

/** Selectors of nodes. Key `app` is one of pods, too. */
const nodeSelectorArbitrary = fc.constantFrom<object[]>(
  {},
  ...['a', 'b', 'c'].map((zone) => ({ matchLabels: { zone } })),
  { matchLabels: { app: 'web' } },
  { matchExpressions: [{ key: 'zone', operator: 'NotIn', values: ['a'] }] },
  { matchExpressions: [{ key: 'role/control', operator: 'Exists' }] },
  { matchLabels: { zone: 'b' }, matchExpressions: [{ key: 'role/control', operator: 'DoesNotExist' }] },
);

const ENTITY_NAMES = ['all', 'world', 'world-ipv4', 'world-ipv6', 'cluster', 'host', 'remote-node', 'kube-apiserver'];
const entityArbitrary = fc.constantFrom(...ENTITY_NAMES, 'ingress', 'health', 'init', 'unmanaged', 'none');

const cidrSetArbitrary = prefixArbitrary.chain((cidr) =>
  fc.subarray([...(EXCEPTS[cidr] ?? [])]).map((except) => (except.length === 0 ? { cidr } : { cidr, except })),
);

const portArbitrary = fc
  .record({
    port: fc.constantFrom(0, 53, 80, 81, 8080, 8087, 65535),
    width: fc.constantFrom(0, 0, 0, 1, 7, 15),
    protocol: fc.constantFrom('TCP', 'UDP', 'SCTP', 'ANY', undefined),
  })
  .map(({ port, width, protocol }) => ({
    port: String(port),
    ...(width === 0 ? {} : { endPort: Math.min(65535, port + width) }),
    ...(protocol === undefined ? {} : { protocol }),
  }));

const wholeArbitrary = fc.record({ protocol: fc.constantFrom('GRE', 'gre', 'VRRP', 'IGMP') });

const icmpsArbitrary = fc.array(
  fc.record({
    fields: fc.array(
      fc.oneof(
        fc.record({ type: fc.constantFrom<unknown[]>(0, 8, '13', 'Echo', 'EchoReply', 'Timestamp', 128) }),
        fc.record({
          family: fc.constant('IPv6'),
          type: fc.constantFrom<unknown[]>(0, 1, 8, '128', 'EchoRequest', 'EchoReply', 'DestinationUnreachable'),
        }),
      ),
      { maxLength: 3 },
    ),
  }),
  { minLength: 1, maxLength: 2 },
);

/** `HTTP` means `http` in a CNP; no pod has `gone`. */
const namedPortArbitrary = fc.record({
  port: fc.constantFrom('http', 'http', 'HTTP', 'dns', 'gone'),
  protocol: fc.constantFrom('TCP', 'UDP', 'ANY'),
});

const l4Arbitrary = (port: fc.Arbitrary<object>) =>
  fc.oneof(
    { weight: 3, arbitrary: fc.constant({}) },
    {
      weight: 3,
      arbitrary: fc
        .array(fc.record({ ports: fc.array(port, { maxLength: 3 }) }), { minLength: 0, maxLength: 2 })
        .map((toPorts) => ({ toPorts })),
    },
    { weight: 2, arbitrary: icmpsArbitrary.map((icmps) => ({ icmps })) },
  );

function elementArbitrary(side: 'from' | 'to', port: fc.Arbitrary<object>): fc.Arbitrary<Record<string, unknown>> {
  const peers = fc.oneof(
    { weight: 2, arbitrary: fc.constant({}) },
    {
      weight: 4,
      arbitrary: fc.array(peerSelectorArbitrary, { maxLength: 2 }).map((items) => ({ [`${side}Endpoints`]: items })),
    },
    { weight: 2, arbitrary: fc.array(prefixArbitrary, { maxLength: 2 }).map((items) => ({ [`${side}CIDR`]: items })) },
    {
      weight: 3,
      arbitrary: fc.array(cidrSetArbitrary, { maxLength: 2 }).map((items) => ({ [`${side}CIDRSet`]: items })),
    },
    {
      weight: 2,
      arbitrary: fc.array(nodeSelectorArbitrary, { maxLength: 2 }).map((items) => ({ [`${side}Nodes`]: items })),
    },
    {
      weight: 3,
      arbitrary: fc.array(entityArbitrary, { maxLength: 2 }).map((items) => ({ [`${side}Entities`]: items })),
    },
  );
  const ports = fc.oneof({ weight: 5, arbitrary: port }, { weight: 1, arbitrary: wholeArbitrary });
  return fc.tuple(peers, l4Arbitrary(ports)).map(([peer, l4]) => ({ ...peer, ...l4 }));
}

/** One rule with at least one element, its ports of the given kind. */
function ruleOf(port: fc.Arbitrary<object>) {
  const ingress = fc.array(elementArbitrary('from', port), { maxLength: 3 });
  const egress = fc.array(elementArbitrary('to', port), { maxLength: 3 });
  return fc
    .record(
      {
        endpointSelector: selectorArbitrary,
        ingress,
        ingressDeny: ingress,
        egress,
        egressDeny: egress,
        enableDefaultDeny: fc.record({ ingress: fc.boolean(), egress: fc.boolean() }, { requiredKeys: [] }),
      },
      { requiredKeys: ['endpointSelector'] },
    )
    .filter((rule) =>
      [rule.ingress, rule.ingressDeny, rule.egress, rule.egressDeny].some((list) => (list ?? []).length > 0),
    );
}

export interface PolicyObject {
  readonly kind: Exclude<PolicyKind, 'BareRules'>;
  readonly object: Readonly<Record<string, unknown>>;
}

function policyOf(port: fc.Arbitrary<object>): fc.Arbitrary<PolicyObject> {
  return fc
    .record({
      scope: fc.constantFrom('a', 'a', 'b', undefined),
      specs: fc.array(ruleOf(port), { minLength: 1, maxLength: 2 }),
    })
    .map(({ scope, specs }) => {
      const kind = scope === undefined ? 'CiliumClusterwideNetworkPolicy' : 'CiliumNetworkPolicy';
      const metadata = scope === undefined ? { name: 'p' } : { name: 'p', namespace: scope };
      const body = specs.length === 1 ? { spec: specs[0] } : { specs };
      return { kind, object: { apiVersion: 'cilium.io/v2', kind, metadata, ...body } };
    });
}

/** A valid, fully supported policy object of namespace a or b, or clusterwide. Ports are numbers. */
export const policyArbitrary: fc.Arbitrary<PolicyObject> = policyOf(portArbitrary);

/** The same, with port names of the small world too. */
export const namingPolicyArbitrary: fc.Arbitrary<PolicyObject> = policyOf(
  fc.oneof({ weight: 1, arbitrary: portArbitrary }, { weight: 2, arbitrary: namedPortArbitrary }),
);

export const policiesArbitrary: fc.Arbitrary<PolicyObject[]> = fc.array(policyArbitrary, { maxLength: 3 });

/** Protocol and port of flows that hit and miss the ports above. */
export const trafficArbitrary: fc.Arbitrary<{ protocol: number; port: number }> = fc.oneof(
  fc.record({
    protocol: fc.constantFrom(6, 17, 132),
    port: fc.constantFrom(0, 1, 15, 16, 53, 60, 80, 81, 82, 87, 88, 95, 8080, 8087, 8088, 8095, 8096, 65535, 443),
  }),
  fc.record({ protocol: fc.constantFrom(1, 58), port: fc.constantFrom(0, 1, 8, 13, 128, 129) }),
  fc.record({ protocol: fc.constantFrom(2, 47, 112, 255), port: fc.constant(0) }),
);
