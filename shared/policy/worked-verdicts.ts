/**
 * The worked verdicts of the language (spec section 11) as data: every row, by its number. A row is either judged (its flows have
 * the listed verdicts, Weir's reading where it differs from upstream's), refused (the object is rejected or partly
 * unsupported, and says where), or outside (no policy object is involved that Weir could read).
 */
import { podIdentityLabels } from '@weir/labels';
import { cidrGroupView } from './cidr-groups.ts';
import type { OracleEndpoint, OracleWorld } from './oracle.ts';
import { serviceView } from './services.ts';
import type { Referents } from './types.ts';

type Json = Readonly<Record<string, unknown>>;

export interface WorkedRow {
  /** Number in the table. Rows with several policies appear several times. */
  readonly row: number;
  readonly title: string;
  /** Whole Kubernetes objects. */
  readonly objects: readonly Json[];
  readonly mode?: 'default' | 'always' | 'never';
  /** `api -> web tcp/80: allow`. Names are of `WORKED_WORLD`, X, Y, Z, W (an outside IPv6 address), or reserved ones. */
  readonly flows?: readonly string[];
  /** What the parser must say. With `UnsupportedField` the flows hold for the fail-closed reading, with `Warning` for all that is written. */
  readonly refused?: { readonly code: 'InvalidSpec' | 'UnsupportedField' | 'Warning'; readonly path: string };
  /** Why the row is outside of what policies decide here. */
  readonly outside?: string;
}

function pod(
  namespace: string,
  team: string,
  name: string,
  labels: Record<string, string>,
  address: string,
  node: string,
  ...tcpPorts: readonly (readonly [string, number])[]
) {
  const endpoint: OracleEndpoint = {
    name: `${namespace}/${name}`,
    labels: podIdentityLabels({
      namespace,
      namespaceLabels: { team, 'kubernetes.io/metadata.name': namespace },
      podLabels: labels,
      serviceAccount: 'default',
    }),
    addresses: [address],
    node,
    namedPorts: tcpPorts.map(([portName, number]) => ({ name: portName, port: number, protocol: 'TCP' })),
  };
  return endpoint;
}

export const WORKED_WORLD: OracleWorld = {
  endpoints: [
    pod('a', 'red', 'web', { app: 'web' }, '10.244.0.6', 'n1'),
    pod('a', 'red', 'api', { app: 'api' }, '10.244.0.7', 'n1'),
    pod('a', 'red', 'db', { app: 'db' }, '10.244.0.8', 'n1', ['pg', 5432]),
    pod('a', 'red', 'db2', { app: 'db' }, '10.244.0.9', 'n1', ['pg', 6432]),
    pod('a', 'red', 'pool', { app: 'pool', no: '1' }, '10.244.0.12', 'n1', ['pg', 5432]),
    pod('a', 'red', 'pool2', { app: 'pool', no: '2' }, '10.244.0.13', 'n1', ['pg', 6432]),
    pod('a', 'red', 'cli', { app: 'cli' }, '10.244.0.10', 'n1'),
    pod('a', 'red', 'h', { app: 'h', host: 'x' }, '10.244.0.11', 'n1'),
    pod('b', 'blue', 'cli', { app: 'cli' }, '10.244.1.9', 'n2'),
    pod('b', 'blue', 'api', { app: 'api' }, '10.244.1.10', 'n2'),
    pod('kube-system', 'none', 'dns', { 'k8s-app': 'kube-dns' }, '10.244.1.53', 'n2'),
  ],
  nodes: [
    { name: 'n1', addresses: ['10.9.0.1'] },
    { name: 'n2', addresses: ['10.9.0.2'] },
    { name: 'n3', addresses: ['10.9.0.3'], kubeApiserver: true },
  ],
};

/** Service `outside` has no selector: its EndpointSlices name an address outside, a pod and a node. Group `pods` covers pods and nodes. */
export const WORKED_REFERENTS: Omit<Referents, 'stack'> = {
  services: serviceView([
    { namespace: 'a', name: 'svc1', labels: { tier: 'data' }, selector: { app: 'db' }, addresses: [] },
    { namespace: 'b', name: 'svc1', labels: { tier: 'front' }, selector: { app: 'api' }, addresses: [] },
    { namespace: 'a', name: 'none', labels: { tier: 'data' }, addresses: [] },
    {
      namespace: 'a',
      name: 'outside',
      labels: {},
      addresses: ['203.0.113.9', '10.244.0.7', '10.9.0.2', '127.0.0.1', '2001:db8::9'],
    },
    {
      namespace: 'a',
      name: 'one-of-set',
      labels: {},
      selector: { app: 'db', 'apps.kubernetes.io/pod-index': '0' },
      addresses: [],
    },
  ]),
  cidrGroups: cidrGroupView([
    { name: 'g', labels: { of: 'partner' }, cidrs: ['10.1.0.0/16'] },
    { name: 'pods', labels: { of: 'pods' }, cidrs: ['10.9.0.0/24', '10.244.0.0/16', '203.0.113.0/24'] },
    {
      name: 'torn',
      labels: { of: 'torn' },
      cidrs: ['10.2.0.0/16'],
      unreadable: 'spec.externalCIDRs[1]: "10.3" is no CIDR',
    },
  ]),
};

/** Short names of flows. `web` is a/web. */
export const WORKED_ADDRESSES: Readonly<Record<string, string>> = {
  web: '10.244.0.6',
  api: '10.244.0.7',
  db: '10.244.0.8',
  db2: '10.244.0.9',
  'a/cli': '10.244.0.10',
  h: '10.244.0.11',
  pool: '10.244.0.12',
  pool2: '10.244.0.13',
  'b/cli': '10.244.1.9',
  'b/api': '10.244.1.10',
  dns: '10.244.1.53',
  n1: '10.9.0.1',
  n2: '10.9.0.2',
  n3: '10.9.0.3',
  X: '203.0.113.9',
  Y: '10.1.2.3',
  Y2: '10.1.9.9',
  Z: '10.2.0.1',
  W: '2001:db8::9',
};

function policy(kind: string, namespace: string | undefined, spec: unknown): Json {
  const apiVersion = kind === 'NetworkPolicy' ? 'networking.k8s.io/v1' : 'cilium.io/v2';
  return { apiVersion, kind, metadata: { name: 'p', ...(namespace === undefined ? {} : { namespace }) }, spec };
}

const cnp = (spec: Json) => policy('CiliumNetworkPolicy', 'a', spec);
const ccnp = (spec: Json) => policy('CiliumClusterwideNetworkPolicy', undefined, spec);
const knp = (spec: Json) => policy('NetworkPolicy', 'a', spec);
const WEB = { matchLabels: { app: 'web' } };
/** A CNP of namespace a for app=web. */
const web = (rule: Json) => cnp({ endpointSelector: WEB, ...rule });
const webKnp = (spec: Json) => knp({ podSelector: WEB, ...spec });

const app = (name: string) => ({ matchLabels: { app: name } });
const from = (...names: string[]) => ({ fromEndpoints: names.map(app) });
const to = (...names: string[]) => ({ toEndpoints: names.map(app) });
const port = (number: string, protocol?: string, endPort?: number) => ({
  port: number,
  ...(protocol === undefined ? {} : { protocol }),
  ...(endPort === undefined ? {} : { endPort }),
});
const ports = (...list: Json[]) => ({ toPorts: [{ ports: list }] });
const tcp = (...numbers: string[]) => ports(...numbers.map((number) => port(number, 'TCP')));
const entities = (...names: string[]) => ({ fromEntities: names });
const cidr = (...list: string[]) => ({ fromCIDR: list });
const cidrSet = (prefix: string, ...except: string[]) => ({ fromCIDRSet: [{ cidr: prefix, except }] });
const http = (method: string, number = '80', protocol = 'TCP') => ({
  toPorts: [{ ports: [port(number, protocol)], rules: { http: [{ method, path: '/x' }] } }],
});
const NS = 'k8s:io.kubernetes.pod.namespace';
const API_80 = { ...from('api'), ...tcp('80') };
const EIGHT = { icmps: [{ fields: [{ family: 'IPv4', type: 8 }] }] };
const group = (name: string, ...except: string[]) => ({ fromCIDRSet: [{ cidrGroupRef: name, except }] });
const groups = (of: string) => ({ fromCIDRSet: [{ cidrGroupSelector: { matchLabels: { of } } }] });
const unsupported = (path: string) => ({ code: 'UnsupportedField' as const, path });
const invalid = (path: string) => ({ code: 'InvalidSpec' as const, path });

export const WORKED_VERDICTS: readonly WorkedRow[] = [
  {
    row: 1,
    title: 'no policy',
    objects: [],
    flows: ['api -> web tcp/80: allow', 'X -> web icmp/8: allow', 'web -> X udp/53: allow', 'n2 -> web gre: allow'],
  },
  {
    row: 2,
    title: 'an empty element denies all, but not to the own node',
    objects: [web({ ingress: [{}] })],
    flows: ['api -> web tcp/80: deny', 'n1 -> web tcp/80: allow', 'web -> api tcp/80: allow'],
  },
  { row: 3, title: 'no element at all', objects: [web({ ingress: [] })], refused: invalid('spec') },
  {
    row: 4,
    title: 'an empty peer list selects nobody',
    objects: [web({ ingress: [{ fromEndpoints: [] }] })],
    flows: ['api -> web tcp/80: deny', 'b/cli -> web tcp/80: deny'],
  },
  {
    row: 5,
    title: 'the empty selector is the own namespace',
    objects: [web({ ingress: [{ fromEndpoints: [{}] }] })],
    flows: ['api -> web tcp/80: allow', 'b/cli -> web tcp/80: deny', 'X -> web tcp/80: deny', 'n2 -> web tcp/80: deny'],
  },
  {
    row: 6,
    title: 'clusterwide, the empty selector is every pod',
    objects: [ccnp({ endpointSelector: {}, ingress: [{ fromEndpoints: [{}] }] })],
    flows: ['b/cli -> web tcp/80: allow', 'X -> web tcp/80: deny', 'n1 -> web tcp/80: allow', 'n2 -> web tcp/80: deny'],
  },
  {
    row: 7,
    title: 'an empty peer list with ports still selects nobody',
    objects: [web({ ingress: [{ fromEndpoints: [], ...tcp('80') }] })],
    flows: ['api -> web tcp/80: deny'],
  },
  {
    row: 8,
    title: 'ports without peers admit any peer',
    objects: [web({ ingress: [tcp('80')] })],
    flows: [
      'api -> web tcp/80: allow',
      'b/cli -> web tcp/80: allow',
      'X -> web tcp/80: allow',
      'api -> web tcp/81: deny',
      'api -> web icmp/8: deny',
      'api -> web udp/80: deny',
    ],
  },
  {
    row: 9,
    title: 'peers without ports: everything; the namespace is injected',
    objects: [web({ ingress: [from('api')] })],
    flows: [
      'api -> web tcp/1: allow',
      'api -> web icmp/8: allow',
      'api -> web udp/9: allow',
      'db -> web tcp/80: deny',
      'b/api -> web tcp/80: deny',
    ],
  },
  {
    row: 10,
    title: 'a namespace key crosses namespaces',
    objects: [web({ ingress: [{ fromEndpoints: [{ matchLabels: { app: 'cli', [NS]: 'b' } }] }] })],
    flows: ['b/cli -> web tcp/80: allow', 'api -> web tcp/80: deny', 'a/cli -> web tcp/80: deny'],
  },
  {
    row: 11,
    title: 'so does a label of the namespace',
    objects: [
      web({ ingress: [{ fromEndpoints: [{ matchLabels: { 'io.cilium.k8s.namespace.labels.team': 'blue' } }] }] }),
    ],
    flows: ['b/cli -> web tcp/80: allow', 'api -> web tcp/80: deny'],
  },
  {
    row: 12,
    title: 'any namespace',
    objects: [web({ ingress: [{ fromEndpoints: [{ matchExpressions: [{ key: NS, operator: 'Exists' }] }] }] })],
    flows: [
      'api -> web tcp/80: allow',
      'b/cli -> web tcp/80: allow',
      'X -> web tcp/80: deny',
      'n2 -> web tcp/80: deny',
    ],
  },
  {
    row: 13,
    title: 'policies add up',
    objects: [web({ ingress: [from('cli')] }), web({ ingress: [from('api')] })],
    flows: ['api -> web tcp/80: allow', 'a/cli -> web tcp/80: allow', 'b/cli -> web tcp/80: deny'],
  },
  {
    row: 14,
    title: 'entity world',
    objects: [web({ ingress: [entities('world')] })],
    flows: ['X -> web tcp/80: allow', 'Y -> web tcp/80: allow', 'api -> web tcp/80: deny', 'n2 -> web tcp/80: deny'],
  },
  {
    row: 15,
    title: 'entity cluster',
    objects: [web({ ingress: [entities('cluster')] })],
    flows: [
      'api -> web tcp/80: allow',
      'b/cli -> web tcp/80: allow',
      'n1 -> web tcp/80: allow',
      'n2 -> web tcp/80: allow',
      'n3 -> web tcp/80: allow',
      'health -> web tcp/80: allow',
      'X -> web tcp/80: deny',
    ],
  },
  {
    row: 16,
    title: 'entity all',
    objects: [web({ ingress: [entities('all')] })],
    flows: [
      'api -> web tcp/80: allow',
      'X -> web icmp/8: allow',
      'n2 -> web gre: allow',
      'unknown -> web tcp/80: allow',
    ],
  },
  {
    row: 17,
    title: 'entity host',
    objects: [web({ ingress: [entities('host')] })],
    flows: ['n1 -> web tcp/80: allow', 'n2 -> web tcp/80: deny', 'api -> web tcp/80: deny'],
  },
  {
    row: 18,
    title: 'entity remote-node',
    objects: [web({ ingress: [entities('remote-node')] })],
    flows: [
      'n2 -> web tcp/80: allow',
      'n1 -> web tcp/80: allow',
      'b/cli -> web tcp/80: deny',
      'n3 -> web tcp/80: allow',
    ],
  },
  {
    row: 19,
    title: 'a CIDR selects no pod and no node',
    objects: [web({ ingress: [cidr('10.0.0.0/8')] })],
    flows: ['Y -> web tcp/80: allow', 'api -> web tcp/80: deny', 'n2 -> web tcp/80: deny', 'X -> web tcp/80: deny'],
  },
  {
    row: 20,
    title: 'except',
    objects: [web({ ingress: [cidrSet('10.0.0.0/8', '10.1.0.0/16')] })],
    flows: ['Y -> web tcp/80: deny', 'Z -> web tcp/80: allow'],
  },
  {
    row: 21,
    title: 'except is not a deny',
    objects: [web({ ingress: [cidrSet('10.0.0.0/8', '10.1.0.0/16'), cidr('10.1.2.0/24')] })],
    flows: ['Y -> web tcp/80: allow', 'Y2 -> web tcp/80: deny'],
  },
  {
    row: 22,
    title: 'a narrow deny in a wide allow',
    objects: [web({ ingress: [cidr('10.0.0.0/8')], ingressDeny: [cidr('10.1.0.0/16')] })],
    flows: ['Y -> web tcp/80: deny', 'Z -> web tcp/80: allow'],
  },
  {
    row: 23,
    title: 'a wide deny beats a narrow allow',
    objects: [web({ ingress: [cidr('10.1.2.3/32')], ingressDeny: [cidr('10.0.0.0/8')] })],
    flows: ['Y -> web tcp/80: deny'],
  },
  {
    row: 24,
    title: 'an exception of a deny escapes it',
    objects: [web({ ingress: [cidr('10.0.0.0/8')], ingressDeny: [cidrSet('10.0.0.0/8', '10.1.0.0/16')] })],
    flows: ['Y -> web tcp/80: allow', 'Z -> web tcp/80: deny'],
  },
  {
    row: 25,
    title: '0.0.0.0/0 is the outside only',
    objects: [web({ ingress: [cidr('0.0.0.0/0')] })],
    flows: ['X -> web tcp/80: allow', 'Y -> web tcp/80: allow', 'api -> web tcp/80: deny', 'n2 -> web tcp/80: deny'],
  },
  {
    row: 26,
    title: 'all but the world',
    objects: [web({ ingress: [entities('all')], ingressDeny: [entities('world')] })],
    flows: ['api -> web tcp/80: allow', 'X -> web tcp/80: deny', 'n2 -> web tcp/80: allow'],
  },
  {
    row: 27,
    title: 'a denied port of allowed ports',
    objects: [web({ ingress: [{ ...from('api'), ...tcp('80', '81') }], ingressDeny: [tcp('80')] })],
    flows: ['api -> web tcp/81: allow', 'api -> web tcp/80: deny', 'api -> web icmp/8: deny'],
  },
  {
    row: 28,
    title: 'a denied port of an allowed peer',
    objects: [web({ ingress: [from('api')], ingressDeny: [tcp('80')] })],
    flows: ['api -> web tcp/80: deny', 'api -> web tcp/443: allow', 'api -> web icmp/8: allow'],
  },
  {
    row: 29,
    title: 'a denied peer beats its allowed port',
    objects: [web({ ingress: [API_80], ingressDeny: [from('api')] })],
    flows: ['api -> web tcp/80: deny', 'api -> web tcp/81: deny', 'db -> web tcp/80: deny', 'X -> web tcp/80: deny'],
  },
  {
    row: 30,
    title: 'one peer denied on a port open to all',
    objects: [web({ ingress: [tcp('80')], ingressDeny: [API_80] })],
    flows: ['api -> web tcp/80: deny', 'db -> web tcp/80: allow'],
  },
  {
    row: 31,
    title: 'a deny list alone turns default deny on',
    objects: [web({ ingressDeny: [from('api')] })],
    flows: ['api -> web tcp/80: deny', 'db -> web tcp/80: deny'],
  },
  {
    row: 32,
    title: 'unless switched off',
    objects: [web({ ingressDeny: [from('api')], enableDefaultDeny: { ingress: false } })],
    flows: ['api -> web tcp/80: deny', 'db -> web tcp/80: allow', 'X -> web tcp/80: allow'],
  },
  {
    row: 33,
    title: 'allows without default deny',
    objects: [web({ ingress: [{ ...from('api'), ...ports(port('80')) }], enableDefaultDeny: { ingress: false } })],
    flows: ['api -> web tcp/80: allow', 'db -> web tcp/22: allow', 'X -> web tcp/80: allow'],
  },
  {
    row: 34,
    title: 'one policy with default deny is enough',
    objects: [
      web({ ingress: [{ ...from('api'), ...ports(port('80')) }], enableDefaultDeny: { ingress: false } }),
      web({ ingress: [from('db')] }),
    ],
    flows: ['api -> web tcp/80: allow', 'db -> web udp/7: allow', 'api -> web tcp/81: deny', 'X -> web tcp/80: deny'],
  },
  {
    row: 35,
    title: 'egress without default deny, ingress untouched',
    objects: [web({ egress: [to('db')], enableDefaultDeny: { egress: false } })],
    flows: ['web -> X tcp/80: allow', 'X -> web tcp/80: allow', 'n2 -> web icmp/8: allow'],
  },
  {
    row: 36,
    title: 'a hole in a range',
    objects: [web({ ingress: [ports(port('8080', 'TCP', 8095))], ingressDeny: [ports(port('8090', 'TCP'))] })],
    flows: [
      'api -> web tcp/8089: allow',
      'api -> web tcp/8090: deny',
      'api -> web tcp/8091: allow',
      'api -> web tcp/8096: deny',
    ],
  },
  {
    row: 37,
    title: 'half of a range denied',
    objects: [
      web({
        ingress: [ports(port('8080', 'TCP', 8095)), { ...from('api'), ...tcp('8083') }],
        ingressDeny: [ports(port('8080', 'TCP', 8087))],
      }),
    ],
    flows: ['api -> web tcp/8083: deny', 'api -> web tcp/8088: allow', 'db -> web tcp/8088: allow'],
  },
  {
    row: 38,
    title: 'protocol ANY has ports',
    objects: [web({ ingress: [ports(port('80', 'ANY'))] })],
    flows: [
      'api -> web tcp/80: allow',
      'api -> web udp/80: allow',
      'api -> web sctp/80: allow',
      'api -> web icmp/8: deny',
    ],
  },
  {
    row: 39,
    title: 'port 0 is all ports of the protocol',
    objects: [web({ ingress: [tcp('0')] })],
    flows: [
      'api -> web tcp/65535: allow',
      'api -> web tcp/0: allow',
      'api -> web udp/1: deny',
      'api -> web icmp/8: deny',
    ],
  },
  {
    row: 40,
    title: 'port 0 of ANY is TCP, UDP and SCTP',
    objects: [web({ ingress: [ports(port('0', 'ANY'))] })],
    flows: [
      'X -> web tcp/1: allow',
      'X -> web udp/2: allow',
      'X -> web sctp/3: allow',
      'X -> web icmp/8: deny',
      'X -> web gre: deny',
    ],
  },
  {
    row: 41,
    title: 'ICMP types',
    objects: [web({ ingress: [EIGHT] })],
    flows: [
      'api -> web icmp/8: allow',
      'X -> web icmp/8: allow',
      'api -> web tcp/80: deny',
      'api -> web icmp/13: deny',
    ],
  },
  {
    row: 42,
    title: 'ICMP of one peer',
    objects: [web({ ingress: [{ ...from('api'), ...EIGHT }] })],
    flows: ['api -> web icmp/8: allow', 'db -> web icmp/8: deny', 'api -> web tcp/80: deny'],
  },
  {
    row: 43,
    title: 'ICMP denied',
    objects: [web({ ingress: [API_80], ingressDeny: [EIGHT] })],
    flows: ['api -> web icmp/8: deny', 'n1 -> web icmp/8: deny', 'api -> web tcp/80: allow'],
  },
  {
    row: 44,
    title: 'port names on egress: pods of different identities, each by its own number',
    objects: [web({ egress: [{ ...to('pool'), ...tcp('pg') }] })],
    flows: [
      'web -> pool tcp/5432: allow',
      'web -> pool tcp/6432: deny',
      'web -> pool2 tcp/6432: allow',
      'web -> pool2 tcp/5432: deny',
      'web -> db tcp/5432: deny',
    ],
  },
  {
    row: 44,
    title: 'port names on egress: pods of equal labels make the name ambiguous',
    objects: [web({ egress: [{ ...to('db'), ...tcp('pg') }] })],
    flows: [
      'web -> db tcp/5432: deny',
      'web -> db tcp/6432: deny',
      'web -> db2 tcp/6432: deny',
      'web -> db2 tcp/5432: deny',
    ],
  },
  {
    row: 45,
    title: 'port names on ingress: each pod by its own number',
    objects: [cnp({ endpointSelector: app('db'), ingress: [tcp('pg')] })],
    flows: ['X -> db tcp/5432: allow', 'X -> db tcp/6432: deny', 'X -> db2 tcp/6432: allow', 'X -> db2 tcp/5432: deny'],
  },
  {
    row: 46,
    title: 'a port name that the pod lacks',
    objects: [web({ ingress: [ports(port('pg'))] })],
    flows: ['X -> web tcp/5432: deny', 'api -> web tcp/80: deny', 'n1 -> web tcp/80: allow'],
  },
  {
    row: 47,
    title: 'HTTP rules',
    objects: [web({ ingress: [{ ...from('api'), ...http('GET') }] })],
    refused: unsupported('spec.ingress[0].toPorts[0].rules'),
    flows: ['api -> web tcp/80: deny', 'api -> web tcp/81: deny', 'db -> web tcp/80: deny'],
  },
  {
    row: 47,
    title: 'HTTP rules outrank a plain allow of all ports',
    objects: [web({ ingress: [{ ...from('api'), ...http('GET') }] }), web({ ingress: [from('api')] })],
    refused: unsupported('spec.ingress[0].toPorts[0].rules'),
    flows: ['api -> web tcp/80: deny', 'api -> web tcp/81: allow'],
  },
  {
    row: 48,
    title: 'HTTP rules and a plain allow of the same peer and port',
    objects: [web({ ingress: [{ ...from('api'), ...http('GET') }] }), web({ ingress: [API_80] })],
    refused: unsupported('spec.ingress[0].toPorts[0].rules'),
    flows: ['api -> web tcp/80: allow'],
  },
  {
    row: 49,
    title: 'HTTP rules and a deny',
    objects: [web({ ingress: [{ ...from('api'), ...http('GET') }] }), web({ ingressDeny: [from('api')] })],
    refused: unsupported('spec.ingress[0].toPorts[0].rules'),
    flows: ['api -> web tcp/80: deny'],
  },
  {
    row: 50,
    title: 'HTTP rules and the own node',
    objects: [web({ ingress: [http('GET')] })],
    refused: unsupported('spec.ingress[0].toPorts[0].rules'),
    flows: ['n1 -> web tcp/80: allow'],
  },
  {
    row: 51,
    title: 'HTTP rules without default deny',
    objects: [web({ ingress: [{ ...from('api'), ...http('GET') }], enableDefaultDeny: { ingress: false } })],
    refused: unsupported('spec.ingress[0].toPorts[0].rules'),
    flows: ['api -> web tcp/80: allow', 'api -> web tcp/81: allow'],
  },
  {
    row: 52,
    title: 'entity kube-apiserver',
    objects: [web({ egress: [{ toEntities: ['kube-apiserver'] }] })],
    flows: [
      'web -> n3 tcp/6443: allow',
      'web -> n2 tcp/6443: deny',
      'web -> X tcp/80: deny',
      'web -> dns udp/53: deny',
    ],
  },
  {
    row: 53,
    title: 'names only',
    objects: [web({ egress: [{ toFQDNs: [{ matchName: 'ex.com' }] }] })],
    flows: ['web -> dns udp/53: deny', 'web -> X tcp/443: deny'],
  },
  {
    row: 54,
    title: 'names and their lookup',
    objects: [
      web({
        egress: [
          {
            toEndpoints: [{ matchLabels: { 'k8s-app': 'kube-dns', [NS]: 'kube-system' } }],
            toPorts: [{ ports: [port('53', 'ANY')], rules: { dns: [{ matchPattern: '*' }] } }],
          },
          { toFQDNs: [{ matchPattern: '*.ex.com' }], ...ports(port('443')) },
        ],
      }),
    ],
    flows: ['web -> X tcp/80: deny'],
  },
  {
    row: 55,
    title: 'KNP: deny all',
    objects: [webKnp({ policyTypes: ['Ingress'], ingress: [] })],
    flows: ['api -> web tcp/80: deny', 'X -> web icmp/8: deny', 'n1 -> web tcp/80: allow', 'web -> api tcp/80: allow'],
  },
  {
    row: 56,
    title: 'KNP: allow all',
    objects: [webKnp({ ingress: [{}] })],
    flows: [
      'api -> web tcp/80: allow',
      'X -> web icmp/8: allow',
      'n2 -> web gre: allow',
      'unknown -> web tcp/80: allow',
    ],
  },
  {
    row: 57,
    title: 'KNP: ipBlock',
    objects: [webKnp({ ingress: [{ from: [{ ipBlock: { cidr: '10.0.0.0/8' } }] }] })],
    flows: [
      'Y -> web tcp/80: allow',
      'b/cli -> web tcp/80: allow',
      'api -> web tcp/80: allow',
      'n2 -> web tcp/80: allow',
      'X -> web tcp/80: deny',
      'unknown -> web tcp/80: deny',
    ],
  },
  {
    row: 58,
    title: 'KNP: any namespace',
    objects: [webKnp({ ingress: [{ from: [{ namespaceSelector: {} }] }] })],
    flows: [
      'api -> web tcp/80: allow',
      'b/cli -> web udp/53: allow',
      'X -> web tcp/80: deny',
      'n2 -> web tcp/80: deny',
    ],
  },
  {
    row: 59,
    title: 'KNP: pods of a namespace',
    objects: [
      webKnp({
        ingress: [{ from: [{ podSelector: app('cli'), namespaceSelector: { matchLabels: { team: 'blue' } } }] }],
      }),
    ],
    flows: ['b/cli -> web tcp/80: allow', 'a/cli -> web tcp/80: deny', 'b/api -> web tcp/80: deny'],
  },
  {
    row: 60,
    title: 'KNP: no egress',
    objects: [webKnp({ policyTypes: ['Egress'], egress: [] })],
    flows: ['web -> api tcp/80: deny', 'web -> X tcp/80: deny', 'web -> n1 tcp/80: deny', 'api -> web tcp/80: allow'],
  },
  {
    row: 61,
    title: 'mode always without a policy',
    objects: [],
    mode: 'always',
    flows: ['api -> web tcp/80: deny', 'n1 -> web tcp/80: allow', 'web -> api tcp/80: deny'],
  },
  {
    row: 62,
    title: 'mode never',
    objects: [web({ ingress: [{}] })],
    mode: 'never',
    flows: ['api -> web tcp/80: allow', 'X -> web icmp/8: allow', 'web -> api tcp/80: allow'],
  },
  {
    row: 63,
    title: 'an explicit deny beats the localhost rule',
    objects: [web({ ingressDeny: [entities('host')], ingress: [entities('all')] })],
    flows: ['n1 -> web tcp/80: deny', 'n2 -> web tcp/80: allow'],
  },
  {
    row: 64,
    title: 'a rule for nodes has no effect: the host firewall is off',
    objects: [ccnp({ nodeSelector: {}, ingress: [tcp('22')] })],
    refused: unsupported('spec.nodeSelector'),
    flows: ['api -> web tcp/80: allow', 'X -> web tcp/22: allow'],
  },
  {
    row: 65,
    title: 'both ends must allow',
    objects: [
      web({ egress: [{ ...to('db'), ...ports(port('5432')) }] }),
      cnp({ endpointSelector: app('db'), ingress: [from('api')] }),
    ],
    flows: ['web -> db tcp/5432: deny ingress', 'web -> db tcp/80: deny egress', 'api -> db tcp/5432: allow'],
  },
  {
    row: 66,
    title: "the subject contradicts the policy's namespace",
    objects: [cnp({ endpointSelector: { matchLabels: { [NS]: 'b', app: 'cli' } }, ingress: [{}] })],
    refused: invalid('spec.endpointSelector'),
  },
  {
    row: 67,
    title: 'nodeSelector in a namespace',
    objects: [cnp({ nodeSelector: {}, ingress: [{}] })],
    refused: invalid('spec.nodeSelector'),
  },
  {
    row: 67,
    title: 'two peer members in one element',
    objects: [web({ egress: [{ toCIDR: ['10.0.0.0/8'], toCIDRSet: [{ cidr: '10.0.0.0/8' }] }] })],
    refused: invalid('spec.egress[0].toCIDRSet'),
    flows: ['web -> Y tcp/80: deny', 'web -> X tcp/80: deny', 'api -> web tcp/80: allow'],
  },
  {
    row: 67,
    title: 'DNS rules on ingress',
    objects: [web({ ingress: [{ toPorts: [{ ports: [port('53')], rules: { dns: [{ matchPattern: '*' }] } }] }] })],
    refused: invalid('spec.ingress[0].toPorts[0].rules.dns'),
    flows: ['api -> web udp/53: deny'],
  },
  {
    row: 67,
    title: 'HTTP rules on UDP',
    objects: [web({ ingress: [http('GET', '80', 'UDP')] })],
    refused: invalid('spec.ingress[0].toPorts[0].ports'),
    flows: ['api -> web udp/80: deny'],
  },
  {
    row: 68,
    title: 'services',
    objects: [
      web({
        egress: [{ toServices: [{ k8sService: { serviceName: 'svc1', namespace: 'a' } }], ...ports(port('5432')) }],
      }),
    ],
    flows: [
      'web -> db tcp/5432: allow',
      'web -> db2 tcp/5432: allow',
      'web -> db tcp/80: deny',
      'web -> api tcp/5432: deny',
      'web -> b/api tcp/5432: deny',
      'web -> X tcp/5432: deny',
    ],
  },
  {
    row: 69,
    title: 'a denied CIDR hits no pod',
    objects: [web({ egress: [to('db')], egressDeny: [{ toCIDR: ['10.244.0.0/16'] }] })],
    flows: ['web -> db tcp/80: allow'],
  },
  {
    row: 70,
    title: 'a CIDR group that is missing',
    objects: [web({ ingress: [group('gone')] })],
    flows: ['X -> web tcp/80: deny', 'Y -> web tcp/80: deny', 'api -> web tcp/80: deny'],
  },
  {
    row: 71,
    title: 'a CIDR group with an exception',
    objects: [web({ ingress: [group('g', '10.1.2.0/24')] })],
    flows: ['Y -> web tcp/80: deny', 'Y2 -> web tcp/80: allow', 'Z -> web tcp/80: deny'],
  },
  {
    row: 72,
    title: 'no egress',
    objects: [web({ egress: [{}] })],
    flows: [
      'web -> api tcp/80: deny',
      'web -> dns udp/53: deny',
      'web -> n1 tcp/80: deny',
      'web -> X tcp/80: deny',
      'api -> web tcp/80: allow',
    ],
  },
  {
    row: 73,
    title: 'egress to the world only',
    objects: [web({ egress: [{ toEntities: ['world'] }] })],
    flows: ['web -> X tcp/80: allow', 'web -> db tcp/80: deny', 'web -> n2 tcp/80: deny', 'web -> dns udp/53: deny'],
  },
  {
    row: 74,
    title: 'a peer behind the address of a node is that node',
    objects: [web({ ingress: [{ fromEndpoints: [{ matchLabels: { app: 'cli', [NS]: 'b' } }] }] })],
    flows: ['n1 -> web tcp/80: allow', 'n2 -> web tcp/80: deny'],
  },
  {
    row: 75,
    title: 'KNP: an empty peer',
    objects: [webKnp({ ingress: [{ from: [{}] }] })],
    refused: { code: 'Warning', path: 'spec.ingress[0].from[0]' },
    flows: ['api -> web tcp/80: deny', 'b/cli -> web tcp/80: deny', 'X -> web tcp/80: deny'],
  },
  {
    row: 76,
    title: 'KNP: an operator that is none',
    objects: [
      webKnp({
        ingress: [{ from: [{ podSelector: { matchExpressions: [{ key: 'app', operator: 'in', values: ['x'] }] } }] }],
      }),
    ],
    refused: invalid('spec.ingress[0].from[0].podSelector.matchExpressions[0].operator'),
    flows: ['api -> web tcp/80: deny', 'X -> web tcp/80: deny'],
  },
  {
    row: 77,
    title: 'an ordinary label host does not exempt a pod',
    objects: [cnp({ endpointSelector: {}, ingress: [{}] })],
    flows: ['api -> h tcp/80: deny', 'api -> web tcp/80: deny'],
  },
  {
    row: 78,
    title: 'CIDR groups by selector',
    objects: [web({ ingress: [groups('pods')] })],
    flows: ['api -> web tcp/80: deny', 'n2 -> web tcp/80: deny', 'X -> web tcp/80: allow', 'Y -> web tcp/80: deny'],
  },
  {
    row: 79,
    title: 'an empty list beside a filled one selects nobody',
    objects: [web({ ingress: [{ ...from('api'), fromCIDR: [] }] })],
    flows: ['api -> web tcp/80: deny'],
  },
  {
    row: 80,
    title: 'a null list is absent',
    objects: [web({ ingress: [{ fromEndpoints: null, ...tcp('80') }] })],
    flows: ['api -> web tcp/80: allow', 'X -> web tcp/80: allow', 'api -> web tcp/81: deny'],
  },
  {
    row: 81,
    title: 'a null subject',
    objects: [cnp({ endpointSelector: null, ingress: [{}] })],
    refused: invalid('spec.endpointSelector'),
  },
  {
    row: 82,
    title: 'an unknown service selects nobody',
    objects: [
      web({ egress: [{ toServices: [{ k8sService: { serviceName: 'gone', namespace: 'a' } }], ...tcp('80') }] }),
    ],
    flows: ['web -> X tcp/80: deny', 'web -> api tcp/80: deny', 'web -> X tcp/81: deny'],
  },
  {
    row: 82,
    title: 'an empty list of names',
    objects: [web({ egress: [{ toFQDNs: [], ...tcp('80') }] })],
    refused: invalid('spec.egress[0].toFQDNs'),
    flows: ['web -> X tcp/80: deny', 'web -> api tcp/80: deny', 'web -> X tcp/81: deny'],
  },
  {
    row: 82,
    title: 'an empty list of groups',
    objects: [web({ egress: [{ toGroups: [], ...tcp('80') }] })],
    refused: invalid('spec.egress[0].toGroups'),
    flows: ['web -> X tcp/80: deny', 'web -> api tcp/80: deny', 'web -> X tcp/81: deny'],
  },
  {
    row: 78,
    title: 'a denied CIDR group, one that is missing, and one that cannot be read',
    objects: [
      web({
        ingress: [entities('all')],
        ingressDeny: [{ ...group('g', '10.1.2.0/24'), ...tcp('80') }, group('gone')],
      }),
      cnp({ endpointSelector: app('db'), ingress: [entities('all')], ingressDeny: [group('torn')] }),
      cnp({ endpointSelector: app('api'), ingress: [group('torn'), API_80] }),
    ],
    refused: invalid('spec.ingressDeny[0].fromCIDRSet[0].cidrGroupRef'),
    flows: [
      'Y2 -> web tcp/80: deny',
      'Y -> web tcp/80: allow',
      'X -> web tcp/80: allow',
      'X -> db tcp/80: deny',
      'Z -> db tcp/80: deny',
      'api -> db tcp/80: allow',
      'Z -> api tcp/80: deny',
      'api -> api tcp/80: allow',
    ],
  },
  {
    row: 83,
    title: 'names cannot be denied',
    objects: [
      web({ egress: [{ toEntities: ['all'] }], egressDeny: [{ toFQDNs: [{ matchName: 'ex.com' }], ...tcp('443') }] }),
    ],
    refused: invalid('spec.egressDeny[0].toFQDNs'),
    flows: ['web -> X tcp/443: deny', 'web -> X tcp/80: allow', 'web -> api tcp/443: allow'],
  },
  {
    row: 84,
    title: 'a misspelt peer of a deny',
    objects: [web({ ingress: [entities('all')], ingressDeny: [{ fromEndpoint: [app('api')], ...tcp('80') }] })],
    refused: invalid('spec.ingressDeny[0].fromEndpoint'),
    flows: ['api -> web tcp/80: deny', 'db -> web tcp/80: deny', 'db -> web tcp/81: allow'],
  },
  {
    row: 85,
    title: 'a range from a port name',
    objects: [web({ ingress: [ports(port('pg', 'TCP', 90))] })],
    refused: invalid('spec.ingress[0].toPorts[0].ports[0].endPort'),
    flows: ['api -> web tcp/80: deny', 'api -> web tcp/85: deny'],
  },
  {
    row: 86,
    title: 'a leading zero',
    objects: [web({ ingress: [tcp('010')] })],
    refused: invalid('spec.ingress[0].toPorts[0].ports[0].port'),
    flows: ['api -> web tcp/8: deny', 'api -> web tcp/10: deny'],
  },
  {
    row: 87,
    title: 'ICMP type 0',
    objects: [web({ ingress: [{ icmps: [{ fields: [{ type: 0 }] }] }] })],
    flows: ['api -> web icmp/0: allow', 'api -> web icmp/8: deny', 'api -> web icmp/13: deny'],
  },
  {
    row: 88,
    title: 'two kinds of L7 rules on one port',
    objects: [
      web({
        egress: [
          { ...to('api'), ...http('GET', '53') },
          { ...to('api'), toPorts: [{ ports: [port('53', 'TCP')], rules: { dns: [{ matchPattern: '*' }] } }] },
        ],
      }),
    ],
    refused: unsupported('spec.egress[0].toPorts[0].rules'),
    flows: ['web -> api tcp/53: deny', 'web -> api tcp/80: deny'],
  },
  {
    row: 89,
    title: 'authentication',
    objects: [web({ ingress: [{ ...from('api'), authentication: { mode: 'required' } }, tcp('80')] })],
    refused: unsupported('spec.ingress[0].authentication.mode'),
    flows: ['api -> web tcp/80: deny', 'api -> web tcp/81: deny', 'db -> web tcp/80: allow', 'db -> web tcp/81: deny'],
  },
  {
    row: 90,
    title: 'mode always overrides enableDefaultDeny',
    objects: [
      web({ ingress: [from('api')], enableDefaultDeny: { ingress: false } }),
      cnp({ endpointSelector: {}, egress: [{ toEntities: ['all'] }] }),
    ],
    mode: 'always',
    flows: ['api -> web tcp/80: allow', 'db -> web tcp/80: deny'],
  },
  {
    row: 91,
    title: 'mode always with the host firewall',
    objects: [],
    mode: 'always',
    outside: 'a node is no endpoint: there is no host firewall',
    flows: ['X -> n1 tcp/22: outside'],
  },
  {
    row: 92,
    title: 'the contradiction without a source prefix',
    objects: [
      cnp({ endpointSelector: { matchLabels: { app: 'cli', 'io.kubernetes.pod.namespace': 'b' } }, ingress: [{}] }),
    ],
    refused: invalid('spec.endpointSelector'),
  },
  {
    row: 93,
    title: 'a reserved label that is only excluded',
    objects: [
      web({
        ingress: [{ fromEndpoints: [{ matchExpressions: [{ key: 'reserved:host', operator: 'DoesNotExist' }] }] }],
      }),
    ],
    refused: invalid('spec.ingress[0].fromEndpoints[0]'),
    flows: ['X -> web tcp/80: deny', 'n2 -> web tcp/80: deny', 'b/cli -> web tcp/80: deny'],
  },
  {
    row: 94,
    title: 'KNP: a namespace label that is only excluded',
    objects: [
      webKnp({
        ingress: [
          {
            from: [{ namespaceSelector: { matchExpressions: [{ key: 'team', operator: 'NotIn', values: ['red'] }] } }],
          },
        ],
      }),
    ],
    flows: ['b/cli -> web tcp/80: allow', 'api -> web tcp/80: deny', 'X -> web tcp/80: deny', 'n2 -> web tcp/80: deny'],
  },
  {
    row: 94,
    title: 'the same in a CNP: only pods, never the world',
    objects: [
      web({
        ingress: [
          {
            fromEndpoints: [
              {
                matchExpressions: [
                  { key: 'k8s:io.cilium.k8s.namespace.labels.team', operator: 'NotIn', values: ['red'] },
                ],
              },
            ],
          },
        ],
      }),
    ],
    flows: ['b/cli -> web tcp/80: allow', 'api -> web tcp/80: deny', 'X -> web tcp/80: deny', 'n2 -> web tcp/80: deny'],
  },
  {
    row: 95,
    title: 'server names and HTTP rules',
    objects: [
      web({
        egress: [
          { ...to('api'), toPorts: [{ ports: [port('443', 'TCP')], serverNames: ['ex.com'] }] },
          { ...to('api'), ...http('GET', '443') },
        ],
      }),
    ],
    refused: unsupported('spec.egress[0].toPorts[0].serverNames'),
    flows: ['web -> api tcp/443: deny'],
  },
  {
    row: 96,
    title: 'KNP: policyTypes decide',
    objects: [webKnp({ policyTypes: ['Ingress'], egress: [{ to: [{ podSelector: app('api') }] }] })],
    refused: { code: 'Warning', path: 'spec.egress' },
    flows: ['web -> api tcp/80: allow', 'web -> db tcp/80: allow', 'api -> web tcp/80: deny'],
  },
  {
    row: 97,
    title: '0.0.0.0/0 with an exception',
    objects: [web({ ingress: [cidrSet('0.0.0.0/0', '10.0.0.0/8')] })],
    flows: ['X -> web tcp/80: allow', 'Y -> web tcp/80: deny', 'api -> web tcp/80: deny', 'n2 -> web tcp/80: deny'],
  },
  {
    row: 98,
    title: 'dual stack: 0.0.0.0/0 is IPv4 only',
    objects: [web({ ingress: [cidr('0.0.0.0/0')] })],
    flows: [
      'X -> web tcp/80: allow',
      'W -> web tcp/80: deny',
      'identity 9 -> web tcp/80: allow',
      'identity 10 -> web tcp/80: deny',
    ],
  },
];
