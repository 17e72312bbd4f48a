/** The honest part of the cluster: what everybody else has, and does, with hostile objects beside it and without. */
import { type KubeObject, type Pod, type Resource, resources } from '@weir/kube';
import { ccnp, cnp, knp, namespace, node, pod } from '../../operator/testing.ts';

/** An object of the API, or a part of one. */
export type Body = Readonly<Record<string, unknown>>;

/** Where the tenant may write. */
export const TENANT = 'tenant';
/** The node whose credentials somebody has. No agent runs there. */
export const TAKEN = 'taken';
/** Nodes with agents. */
export const NODES = ['n1', 'n2'] as const;
const ALL_NODES = [...NODES, TAKEN] as const;

type NodeName = (typeof NODES)[number] | typeof TAKEN;

export interface HonestPod {
  readonly namespace: string;
  readonly name: string;
  readonly app: string;
  readonly node: NodeName;
  readonly ip: string;
}

const at = (where: string, app: string, nodeName: NodeName, ip: string): HonestPod => {
  const [ns = '', name = ''] = where.split('/');
  return { namespace: ns, name, app, node: nodeName, ip };
};

export const PODS: readonly HonestPod[] = [
  at('victim/web', 'web', 'n1', '10.0.1.1'),
  at('victim/db', 'db', 'n2', '10.0.2.1'),
  at('victim/far', 'far', TAKEN, '10.0.3.1'),
  at('calm/app', 'app', 'n1', '10.0.1.2'),
  at('calm/peer', 'peer', 'n2', '10.0.2.2'),
  at(`${TENANT}/client`, 'client', 'n1', '10.0.1.9'),
  at(`${TENANT}/server`, 'server', 'n2', '10.0.2.9'),
];
/** Comes while hostile objects are there. */
export const LATER = at('victim/later', 'db', 'n2', '10.0.2.3');
/** Comes with it, and has labels that nobody had. */
export const FRESH = at('victim/fresh', 'fresh', 'n1', '10.0.1.3');
/** Comes at the end: the identity that was given last stays until there is another. */
export const LAST = at('calm/last', 'last', 'n1', '10.0.1.4');
/** Goes meanwhile. */
export const GOING = PODS.find(({ name }) => name === 'peer') as HonestPod;

export const NODE_ADDRESSES = { n1: '192.0.2.1', n2: '192.0.2.2', [TAKEN]: '192.0.2.3' } as const;
export const APISERVER = '192.0.2.100';
/** Outside, in a CIDR that a policy names, and in none. */
export const OUTSIDE = ['198.51.100.7', '203.0.113.9'] as const;

export const PROBES = {
  addresses: [
    ...PODS.map(({ ip }) => ip),
    LATER.ip,
    FRESH.ip,
    ...Object.values(NODE_ADDRESSES),
    APISERVER,
    ...OUTSIDE,
    '10.96.0.9',
  ],
  ports: [80, 81, 443],
};

/** Its second node never says that it enforces this one: whoever makes it look enforced lies. */
export const WITHHELD = 'cnp/victim/held';

export function podObject({ namespace: ns, name, app, node: nodeName, ip }: HonestPod): Pod {
  const ports = [{ name: 'web', containerPort: 80, protocol: 'TCP' }];
  const object = pod(`${ns}/${name}`, { app }, { ip, node: nodeName, ports });
  return { ...object, status: { ...object.status, hostIP: NODE_ADDRESSES[nodeName] } };
}

/** Of the pod CIDR 10.0.N.0/24 of a node; undefined: there is no such node. */
export function nodeIndexOf(name: unknown): number | undefined {
  const at = ALL_NODES.indexOf(name as (typeof ALL_NODES)[number]);
  return at < 0 ? undefined : at + 1;
}

export const NODE_OBJECTS = ALL_NODES.map((name) =>
  node(name, 'True', { podCIDRs: [`10.0.${nodeIndexOf(name)}.0/24`], addresses: [NODE_ADDRESSES[name]] }),
);

type Made = readonly [resource: Resource<KubeObject>, object: KubeObject];
const made = <T extends KubeObject>(resource: Resource<T>, object: T): Made => [
  resource as unknown as Resource<KubeObject>,
  object,
];

const NAMESPACES: Readonly<Record<string, Record<string, string>>> = {
  victim: { team: 'blue' },
  calm: { team: 'calm' },
  [TENANT]: { team: 'red' },
};
const NS = 'k8s:io.kubernetes.pod.namespace';
const TCP = (port: string) => [{ ports: [{ port, protocol: 'TCP' }] }];
const is = (app: string, ns?: string) => ({ matchLabels: { app, ...(ns === undefined ? {} : { [NS]: ns }) } });

const web = (peer: string) =>
  cnp('victim/web', {
    endpointSelector: is('web'),
    ingress: [
      { fromEndpoints: [is(peer)], toPorts: TCP('web') },
      { fromEndpoints: [is('client', TENANT)], toPorts: TCP('81') },
      { fromEntities: ['remote-node'], toPorts: TCP('443') },
    ],
    ingressDeny: [{ fromEndpoints: [is('evil', TENANT)] }, { fromEndpoints: [is('evil')] }],
    egress: [
      { toCIDRSet: [{ cidr: '198.51.100.0/24', except: ['198.51.100.128/25'] }] },
      { toEntities: ['kube-apiserver'], toPorts: TCP('443') },
      { toEndpoints: [is('db')], toPorts: TCP('web') },
    ],
  });

/** After namespaces, nodes and the pods. */
export const POLICIES: readonly Made[] = [
  made(resources.CiliumNetworkPolicy, web('db')),
  made(
    resources.CiliumNetworkPolicy,
    cnp('victim/held', { endpointSelector: is('db'), egress: [{ toEntities: ['cluster'] }] }),
  ),
  made(
    resources.NetworkPolicy,
    knp('victim/np', {
      podSelector: { matchLabels: { app: 'db' } },
      policyTypes: ['Ingress'],
      ingress: [
        { from: [{ podSelector: { matchLabels: { app: 'web' } } }], ports: [{ port: 'web', protocol: 'TCP' }] },
        { from: [{ namespaceSelector: { matchLabels: { team: 'calm' } } }], ports: [{ port: 443 }] },
      ],
    }),
  ),
  made(
    resources.CiliumNetworkPolicy,
    cnp('calm/app', {
      endpointSelector: is('app'),
      ingress: [{ fromEndpoints: [{}] }],
      egress: [{ toEntities: ['world'] }, { toEntities: ['remote-node'], toPorts: TCP('80') }],
    }),
  ),
  made(
    resources.CiliumClusterwideNetworkPolicy,
    ccnp('teams', {
      endpointSelector: { matchLabels: { 'io.cilium.k8s.namespace.labels.team': 'calm' } },
      ingress: [{ fromEndpoints: [{ matchLabels: { 'io.cilium.k8s.namespace.labels.team': 'blue' } }] }],
      ingressDeny: [{ fromEntities: ['world'] }],
    }),
  ),
];

/** What every object of the cluster needs first. */
export const GROUND: readonly Made[] = [
  ...Object.entries(NAMESPACES).map(([name, labels]) => made(resources.Namespace, namespace(name, labels))),
  made(resources.EndpointSlice, {
    apiVersion: 'discovery.k8s.io/v1',
    kind: 'EndpointSlice',
    metadata: { namespace: 'default', name: 'kubernetes', labels: { 'kubernetes.io/service-name': 'kubernetes' } },
    addressType: 'IPv4',
    endpoints: [{ addresses: [APISERVER] }],
    ports: [],
  } as never),
  made(resources.Service, {
    apiVersion: 'v1',
    kind: 'Service',
    metadata: { namespace: 'victim', name: 'web' },
    spec: { clusterIP: '10.96.0.9', clusterIPs: ['10.96.0.9'], ports: [{ port: 80, protocol: 'TCP' }] },
  } as never),
  made(resources.NodePolicyStatus, {
    apiVersion: 'weir.dev/v1alpha1',
    kind: 'NodePolicyStatus',
    metadata: { name: TAKEN },
    // It has read everything that will ever be there.
    status: {
      counts: { endpoints: 0, policies: 0 },
      failures: [],
      failureCount: 0,
      revision: 1,
      policyVersion: '1000000000',
    },
  }),
];

/** The edit that is made while hostile objects are there. */
export const EDITED = web('app');
