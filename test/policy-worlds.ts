/** Policies to play an API server's schema and the parser with: mostly right, each with something that may be wrong. */
import fc from 'fast-check';
import { ENTITIES } from '../shared/policy/parse-element.ts';

export type Kind = 'CiliumNetworkPolicy' | 'CiliumClusterwideNetworkPolicy';
type Arb = fc.Arbitrary<unknown>;

const some = (...values: readonly unknown[]): Arb => fc.constantFrom(...values);
/** Mostly what is right: one thing that is wrong suffices. */
const mostly = (right: Arb, wrong: Arb): Arb =>
  fc.oneof({ weight: 24, arbitrary: right }, { weight: 1, arbitrary: wrong });
const record = (fields: Readonly<Record<string, Arb>>, requiredKeys: readonly string[] = []): Arb =>
  mostly(fc.record(fields, { requiredKeys: [...requiredKeys] }), some(null, 'x', 1, true, [], {}));
const list = (items: Arb): Arb =>
  mostly(fc.array(items, { minLength: 1, maxLength: 2 }), some([], null, {}, 'x', [null], [[]]));
/** Texts that fit, texts that do not, and whatever may be either. */
const text = (right: readonly string[], wrong: readonly string[] = []): Arb =>
  mostly(some(...right), fc.oneof(some(...wrong, '', ' ', 'a b', 'é', 'x\n', null, 1, true, []), SEED));
const SEED = fc.stringMatching(/^[0-9./:a-cfzAZ-]{0,18}$/);

const label = text(['web', 'a.b-c_D', 'x'.repeat(63), ''], ['x'.repeat(64), '-a', 'a-', 'a/b']);
const key = text(
  ['app', 'k8s:app', 'any:app', 'a.example/b'],
  ['reserved:host', 'io.kubernetes.pod.namespace', 'a/b/c'],
);
const expression = record({ key, operator: text(['In', 'NotIn'], ['Exists', 'in', 'Equals']), values: list(label) }, [
  ...['key', 'operator', 'values'],
]);
const selector = record({
  matchLabels: mostly(
    fc.dictionary(some('app', 'k8s:tier') as fc.Arbitrary<string>, label, { maxKeys: 2 }),
    some(null, [], 'x', { 'a b': 'c' }, { app: null }),
  ),
  matchExpressions: list(expression),
});
const V4 = ['10.0.0.0/8', '0.0.0.0/0', '192.0.2.255/32', '249.250.199.200/19', '1.20.100.9/5'];
const V6 = ['::/0', 'fd00::/8', '1:2:3:4:5:6:7:8/64', '2001:DB8::/109', '::1/128', '64:ff9b::10.0.0.1/120'];
const BAD = ['10.0.0.0/33', '256.0.0.0/8', '010.0.0.0/8', '10.0.0/8', '10.0.0.0/08', '10.0.0.0/255.0.0.0', '::/129'];
const BAD6 = ['::ffff:10.0.0.1/128', 'fd00::1::/64', 'fe80::1%eth0', ':', '::/00', 'g::/8', '1:2:3:4:5:6:7:8:9/8'];
const cidr = text([...V4, ...V6], [...BAD, ...BAD6, '10.1.2.3', '::1']);
const address = text([...V4, ...V6, '10.1.2.3', '2001:db8::1'], [...BAD, ...BAD6]);
const group = text(['g', '1.a-b.c', 'x'.repeat(253)], ['G', 'a_b', '-a', 'a.-b', 'a..b', 'a.', 'x'.repeat(254)]);
const cidrRule = fc.oneof(
  record({ cidr: some('10.0.0.0/8', '::/0'), except: mostly(some([], ['10.1.0.0/16']), list(cidr)) }, ['cidr']),
  record({ cidr }, ['cidr']),
  record({ cidrGroupRef: group, cidr: some('') }, ['cidrGroupRef']),
  record({ cidrGroupSelector: selector }, ['cidrGroupSelector']),
  record({ cidr, except: some([], ['10.1.0.0/16']), cidrGroupRef: group, cidrGroupSelector: selector }),
);
const NUMBERS = ['0', '1', '80', '65535', '6553', '65529', '64999', '59999', '9999'];
const NO_NUMBERS = ['010', '65536', '99999', '655350', '-1', '80-90', '1_000', '00'];
const NAMES = ['http', 'HTTP-2', '1-2a', 'a23456789012345', '9-9-z-9', '0x50', '1e3', '08a'];
const NO_NAMES = ['a--b', '-a', 'a-', '1-2', 'a234567890123456', 'a_b'];
const protocol = text(['TCP', 'tcp', 'Udp', 'SCTP', 'ANY', ''], ['VRRP', 'ipv6', 'ICMP', 'TCPX', '6']);
const port = fc.oneof(
  record({ port: text([...NUMBERS, ...NAMES], [...NO_NUMBERS, ...NO_NAMES]), protocol }, ['port']),
  record({ port: some('80', '0'), endPort: mostly(some(0, 1, 90, 65_535, null), some(65_536, -1, 1.5, '90')) }, [
    'port',
  ]),
  record({ port: some('http', '80'), endPort: some(0, 90) }, ['port']),
  record({
    protocol: text(['VRRP', 'IGMP', 'ipip', 'IPv6', 'GRE', 'esp', 'AH']),
    port: some('', '0', null),
    endPort: some(0),
  }),
);
const portRule = record({
  ports: fc.oneof(
    { weight: 30, arbitrary: list(port) },
    { weight: 1, arbitrary: some(Array(41).fill({ port: '1' }), Array(40).fill({ port: '1' })) },
  ),
});
const hostName = text(['a.example', 'A_b.-', '.'], ['*.a', 'a b', 'x'.repeat(256)]);
const hostPattern = text(['*.example', '**.a', '*', 'x'.repeat(255)], ['a/b', 'é', 'x'.repeat(256)]);
const host = fc.oneof(
  { weight: 5, arbitrary: record({ matchName: hostName }, ['matchName']) },
  { weight: 5, arbitrary: record({ matchPattern: hostPattern }, ['matchPattern']) },
  { weight: 1, arbitrary: record({ matchName: hostName, matchPattern: hostPattern }) },
);
const secret = record({ name: text(['s']), namespace: text(['n', '']) }, ['name']);
const tls = record({ secret, trustedCA: text(['a']), certificate: text(['b']), privateKey: text(['c', '']) }, [
  'secret',
]);
const header = record(
  { name: text(['X']), value: text(['y', '']), secret, mismatch: text(['LOG', 'REPLACE', ''], ['log', 'DROP']) },
  ['name'],
);
const http = record({
  ...{ path: text(['/a', '']), method: text(['GET'], ['(']), host: text(['h']) },
  ...{ headers: list(text(['A: b'])), headerMatches: list(header) },
});
const rules = fc.oneof(
  record({ http: list(http) }),
  record({ dns: list(host) }),
  record({ l7proto: text(['r2d2']), l7: some([], [{ cmd: 'READ' }], null) }, ['l7proto']),
  record({ kafka: some([], [{}], null) }),
  record({ http: list(http), dns: list(host), l7: some([{}]) }),
);
const serverName = text(['a.example', '*.a', '**.a.b', 'a.', '_a-'], ['*', 'a.*', '***.a', '*a.b', '.a', 'a..b']);
const listener = record(
  {
    name: text(['l']),
    priority: mostly(some(0, 1, 100, undefined), some(101, -1, 1.5, '1', null)),
    envoyConfig: record(
      { kind: text(['CiliumEnvoyConfig', 'CiliumClusterwideEnvoyConfig', ''], ['EnvoyConfig']), name: text(['e']) },
      ['name'],
    ),
  },
  ['name', 'envoyConfig'],
);
/** What asks for a proxy, mostly one way of it. */
const asking = fc.oneof(
  record({ rules }, ['rules']),
  record({ serverNames: list(serverName) }, ['serverNames']),
  record({ terminatingTLS: tls, originatingTLS: tls }),
  record({ listener }, ['listener']),
  record({ rules, serverNames: list(serverName), terminatingTLS: tls, listener }),
);
/** DNS rules are for both protocols, all others for TCP. */
const L7 = asking.map((parts) => ({ ports: [{ port: '80', protocol: 'TCP' }], ...(parts as object) }));
const TYPES = [0, 8, 255, '8', '255', 'EchoRequest'];
const field = record(
  {
    family: text(['IPv4', 'IPv6', ''], ['ipv4']),
    type: mostly(some(...TYPES), fc.oneof(some(256, -1, 1.5, '08', '256', 'echo', 'Nonsense', null), SEED)),
  },
  ['type'],
);
const icmp = record({
  fields: fc.oneof(
    { weight: 30, arbitrary: list(field) },
    { weight: 1, arbitrary: some(Array(41).fill({ type: 8 }), Array(40).fill({ type: 8 })) },
  ),
});
const service = fc.oneof(
  record({ k8sService: record({ serviceName: text(['s']), namespace: text(['n', '']) }, ['serviceName']) }, [
    'k8sService',
  ]),
  record({ k8sServiceSelector: record({ selector, namespace: text(['n']) }, ['selector']) }, ['k8sServiceSelector']),
  some({ k8sService: { serviceName: 's' }, k8sServiceSelector: { selector: {} } }, {}),
);
const element = (direction: 'ingress' | 'egress', deny: boolean): Arb => {
  const to = direction === 'egress';
  const word = to ? 'to' : 'from';
  const peers: readonly (readonly [string, Arb])[] = [
    [`${word}Endpoints`, list(selector)],
    [`${word}CIDR`, list(address)],
    [`${word}CIDRSet`, list(cidrRule)],
    [`${word}Entities`, list(text(ENTITIES, ['World', 'node']))],
    [`${word}Nodes`, mostly(list(selector), some([]))],
    [`${word}Groups`, some([], [{}], null)],
    ...(to ? [['toServices', list(service)] as const] : []),
    ...(to && !deny ? [['toFQDNs', list(host)] as const] : []),
    ['fromEndpoint', some([])],
  ];
  const ports: readonly (readonly [string, Arb])[] = [
    ['toPorts', fc.oneof({ weight: 9, arbitrary: list(portRule) }, { weight: 1, arbitrary: list(L7) })],
    ['icmps', list(icmp)],
    ...(deny
      ? []
      : [['authentication', record({ mode: text(['disabled', 'required'], ['never']) }, ['mode'])] as const]),
  ];
  const one = (parts: typeof peers): Arb =>
    fc.oneof(...parts.map(([name, value]) => value.map((each) => ({ [name]: each }))));
  const alone = fc.tuple(one(peers), fc.oneof(some({}), one(ports))).map((parts) => Object.assign({}, ...parts));
  return fc.oneof(
    { weight: 9, arbitrary: alone },
    { weight: 1, arbitrary: fc.record(Object.fromEntries([...peers, ...ports]), { requiredKeys: [] }) },
  );
};
const LISTS = ['ingress', 'ingressDeny', 'egress', 'egressDeny'] as const;
const elements = (name: (typeof LISTS)[number]): Arb =>
  list(element(name.startsWith('in') ? 'ingress' : 'egress', name.endsWith('Deny')));
const more = record({
  enableDefaultDeny: record({ ingress: some(true, false, null), egress: mostly(some(true), some('true', 0)) }),
  labels: list(record({ key: text(['a']), value: text(['b']), source: text(['c']) }, ['key'])),
  description: text(['anything']),
  log: record({ value: text(['printable', 'x'.repeat(32), '', '~'], ['x'.repeat(33), 'a\tb']) }),
  nodeSelector: mostly(some(undefined), some({}, null)),
  ingres: mostly(some(undefined), some([{}])),
});
const rule = fc
  .tuple(
    fc.oneof({ weight: 4, arbitrary: some({}) }, selector),
    fc.oneof(...LISTS.map((name) => elements(name).map((each) => ({ [name]: each })))),
    fc.oneof({ weight: 3, arbitrary: some({}) }, { weight: 1, arbitrary: more }),
  )
  .map(([endpointSelector, lists, rest]) => ({ endpointSelector, ...(lists as object), ...(rest as object) }));
const kind = some('CiliumNetworkPolicy', 'CiliumClusterwideNetworkPolicy') as fc.Arbitrary<Kind>;
export const world = fc.record({
  kind,
  parts: fc.oneof(
    { weight: 8, arbitrary: fc.record({ spec: rule }) },
    // With nothing beside it that may be wrong.
    { weight: 2, arbitrary: L7.map((item) => ({ spec: { endpointSelector: {}, egress: [{ toPorts: [item] }] } })) },
    { weight: 1, arbitrary: fc.record({ specs: list(rule) }) },
    {
      weight: 1,
      arbitrary: fc.record({ spec: mostly(rule, some(null, {}, [])), specs: list(rule) }, { requiredKeys: [] }),
    },
  ),
});
