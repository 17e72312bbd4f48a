/** The kinds of objects that operator and agents read, who may write them, and well-formed ones to begin with. */
import {
  type KubeObject,
  NODE_ADDRESSES_ANNOTATION,
  NODE_ANNOTATION,
  POD_UIDS_ANNOTATION,
  type Resource,
  resources,
} from '@weir/kube';
import { withOwnAddresses } from './admission.ts';
import { APISERVER, type Body, NODE_ADDRESSES, PODS, TAKEN, TENANT } from './story.ts';

/**
 * `tenant`: whoever may write everything in one namespace, pods' status too, as far as admission lets them (admission.ts). `node`: who holds the credentials of one node's kubelet and agent.
 * `stranger`: who may write everything of `cilium.io` and `weir.dev`, namespaces and nodes: of such objects it is asked that nobody crashes, and
 * that nothing of them stays.
 */
export type Author = 'tenant' | 'node' | 'stranger';
export const AUTHORS: readonly Author[] = ['tenant', 'node', 'stranger'];

export interface Kind {
  readonly name: string;
  readonly author: Author;
  readonly resource: Resource<KubeObject>;
  /** Where the author may make one; undefined: cluster-scoped. */
  readonly namespaces?: readonly string[];
  /** The one object of this kind that the author may change (`namespace/name`); undefined: new ones. */
  readonly only?: string;
  /** Default: any. */
  readonly names?: readonly string[];
  /** `§kind/namespace/name§` stands for the uid of an honest object. */
  readonly samples: readonly Body[];
  /** First fields that the author cannot write. */
  readonly fixed?: readonly string[];
  /** What an object of this name must have for the API server to let this author write it. */
  readonly must?: (body: Body, name: string) => Body;
}

const of = <T extends KubeObject>(resource: Resource<T>): Resource<KubeObject> =>
  resource as unknown as Resource<KubeObject>;

const selector = { matchLabels: { app: 'web' }, matchExpressions: [{ key: 'team', operator: 'In', values: ['blue'] }] };
const VICTIM = { matchLabels: { 'k8s:io.kubernetes.pod.namespace': 'victim' } };
const ports = [
  {
    ports: [
      { port: 'web', protocol: 'TCP' },
      { port: '80', endPort: 90 },
    ],
  },
];
const rule = {
  endpointSelector: {},
  description: 'x',
  enableDefaultDeny: { ingress: true, egress: false },
  ingress: [
    { fromEndpoints: [selector, VICTIM], toPorts: ports },
    { fromCIDRSet: [{ cidr: '10.0.0.0/8', except: ['10.0.1.0/24'] }], icmps: [{ fields: [{ type: 8 }] }] },
  ],
  ingressDeny: [{ fromEntities: ['all'] }],
  egress: [{ toEndpoints: [VICTIM], toFQDNs: [{ matchName: 'a' }] }, { toCIDR: ['10.0.2.1/32'] }],
  egressDeny: [{ toEntities: ['cluster', 'kube-apiserver'], toPorts: ports }],
};
/** Nothing in it that is not enforced. */
const plain = {
  endpointSelector: {},
  ingress: [
    { fromEndpoints: [selector, {}], toPorts: ports },
    { fromCIDRSet: [{ cidr: '10.0.0.0/8', except: ['10.0.1.0/24'] }, { cidr: '198.51.100.0/24' }] },
  ],
  ingressDeny: [
    { fromEndpoints: [selector], icmps: [{ fields: [{ type: 'Timestamp' }, { family: 'IPv6', type: 128 }] }] },
    { fromCIDR: ['10.0.1.1/32', '192.0.2.1/32'], toPorts: [{ ports: [{ protocol: 'VRRP' }] }] },
  ],
  egress: [{ toEntities: ['all'] }, { toCIDR: ['10.0.2.0/24'], toPorts: ports }],
  egressDeny: [{ toEntities: ['kube-apiserver', 'world'] }],
};
const networkPolicy = {
  spec: {
    podSelector: { matchLabels: { app: 'web' } },
    policyTypes: ['Ingress', 'Egress'],
    ingress: [{ from: [{ namespaceSelector: {}, podSelector: selector }], ports: [{ port: 'web', protocol: 'TCP' }] }],
    egress: [{ to: [{ ipBlock: { cidr: '0.0.0.0/0', except: ['10.0.0.0/8'] } }], ports: [{ port: 1, endPort: 99 }] }],
  },
};
const container = { name: 'c', image: 'i', ports: [{ name: 'web', containerPort: 81, protocol: 'TCP' }] };
const pod = {
  metadata: { labels: { app: 'evil', team: 'blue' }, annotations: {} },
  spec: {
    nodeName: 'n1',
    serviceAccountName: 'default',
    hostNetwork: false,
    containers: [container],
    initContainers: [{ ...container, restartPolicy: 'Always' }],
  },
  status: {
    phase: 'Running',
    podIP: '10.0.1.77',
    podIPs: [{ ip: '10.0.1.77' }],
    hostIP: NODE_ADDRESSES.n1,
    conditions: [{ type: 'Ready', status: 'True' }],
  },
};
/** Pods that claim others' addresses, each where it could have them. */
const claiming = PODS.map(({ ip, node }) => ({
  ...pod,
  spec: { ...pod.spec, nodeName: node },
  status: { ...pod.status, podIP: ip, podIPs: [{ ip }], hostIP: NODE_ADDRESSES[node] },
}));
const endpointSlice = {
  metadata: { labels: { 'kubernetes.io/service-name': 'kubernetes' } },
  addressType: 'IPv4',
  endpoints: [
    { addresses: ['10.0.1.1'], nodeName: 'n1', targetRef: { kind: 'Pod', namespace: 'victim', name: 'web' } },
  ],
};
const service = {
  spec: { clusterIP: '10.96.0.9', clusterIPs: ['10.96.0.9'], externalIPs: ['10.0.1.1'], selector: { app: 'web' } },
  status: { loadBalancer: { ingress: [{ ip: APISERVER }] } },
};
const ciliumEndpoint = {
  metadata: { annotations: { [NODE_ANNOTATION]: TAKEN } },
  status: {
    id: 1,
    identity: { id: 256, labels: ['k8s:app=web'] },
    networking: { addressing: [{ ipv4: '10.0.1.1' }], node: NODE_ADDRESSES.n1 },
    state: 'ready',
  },
};
const workload = {
  metadata: { labels: { 'k8s-app': 'cilium', 'io.cilium/app': 'operator', name: 'cilium-operator' } },
  spec: {},
};
const report = {
  metadata: { ownerReferences: [{ apiVersion: 'v1', kind: 'Node', name: TAKEN, uid: `§Node/${TAKEN}§` }] },
  status: {
    counts: { endpoints: 4, policies: 7 },
    failures: [{ uid: '§CiliumNetworkPolicy/calm/app§', generation: 1, reason: 'KernelRefused', message: 'x' }],
    failureCount: 60,
    revision: 7,
    policyVersion: '999999',
  },
};
const nodeObject = {
  metadata: {
    labels: { 'kubernetes.io/hostname': 'n1' },
    annotations: { [NODE_ADDRESSES_ANNOTATION]: `10.0.1.1,${APISERVER},fd00::1,10.0.0.0/8` },
  },
  status: {
    addresses: [
      { type: 'InternalIP', address: '10.0.1.1' },
      { type: 'ExternalIP', address: APISERVER },
    ],
    conditions: [{ type: 'Ready', status: 'True' }],
  },
};
const labels = { 'k8s:app': 'web', 'k8s:io.kubernetes.pod.namespace': 'victim' };
const TENANTS_OWN = [TENANT];
const EVERYWHERE = [TENANT, 'victim', 'calm', 'default'];

/** Of the node's kubelet: a mirror of a static pod, on this node. */
const mirror = (body: Body): Body => {
  const { metadata, spec, ...rest } = body as Readonly<Record<string, object>>;
  const { annotations } = { annotations: {}, ...metadata };
  return {
    ...rest,
    metadata: { ...metadata, annotations: { ...(annotations as object), 'kubernetes.io/config.mirror': 'x' } },
    spec: { ...spec, nodeName: TAKEN },
  };
};
/** Of the node's agent: admission wants the annotation. */
const ofTaken = (body: Body): Body => {
  const { metadata, ...rest } = body as Readonly<Record<string, object>>;
  return { ...rest, metadata: { ...metadata, annotations: { [NODE_ANNOTATION]: TAKEN } } };
};

export const KINDS: readonly Kind[] = [
  ...(['tenant', 'stranger'] as const).flatMap((author): Kind[] => {
    const namespaces = author === 'tenant' ? TENANTS_OWN : EVERYWHERE;
    return [
      {
        name: 'CiliumNetworkPolicy',
        author,
        resource: of(resources.CiliumNetworkPolicy),
        namespaces,
        samples: [
          { spec: plain },
          { spec: rule },
          { specs: [plain, rule] },
          { spec: { endpointSelector: {}, ingress: '«rules that multiply»' } },
        ],
        fixed: ['status'],
      },
      { name: 'NetworkPolicy', author, resource: of(resources.NetworkPolicy), namespaces, samples: [networkPolicy] },
      {
        name: 'Pod',
        author,
        resource: of(resources.Pod),
        namespaces,
        samples: [pod, ...claiming],
        ...(author === 'tenant' ? { must: withOwnAddresses } : {}),
      },
      { name: 'Service', author, resource: of(resources.Service), namespaces, samples: [service] },
      { name: 'EndpointSlice', author, resource: of(resources.EndpointSlice), namespaces, samples: [endpointSlice] },
      { name: 'CiliumEndpoint', author, resource: of(resources.CiliumEndpoint), namespaces, samples: [ciliumEndpoint] },
      { name: 'DaemonSet', author, resource: resources.DaemonSet, namespaces: TENANTS_OWN, samples: [workload] },
      { name: 'Deployment', author, resource: resources.Deployment, namespaces: TENANTS_OWN, samples: [workload] },
    ];
  }),
  {
    name: 'Node',
    author: 'node',
    resource: of(resources.KubeNode),
    only: TAKEN,
    samples: [nodeObject],
    fixed: ['spec'],
  },
  {
    name: 'NodePolicyStatus',
    author: 'node',
    resource: of(resources.NodePolicyStatus),
    only: TAKEN,
    samples: [report],
  },
  {
    name: 'CiliumEndpoint',
    author: 'node',
    resource: of(resources.CiliumEndpoint),
    namespaces: EVERYWHERE,
    samples: [ciliumEndpoint],
    must: ofTaken,
  },
  {
    name: 'mirror Pod',
    author: 'node',
    resource: of(resources.Pod),
    namespaces: EVERYWHERE,
    samples: [pod, ...claiming],
    must: mirror,
  },
  {
    name: 'status of a Pod',
    author: 'node',
    resource: of(resources.Pod),
    only: PODS.filter(({ node }) => node === TAKEN).map((own) => `${own.namespace}/${own.name}`)[0] ?? '',
    samples: [pod, ...claiming].map(({ status }) => ({ status })),
    fixed: ['metadata', 'spec'],
  },
  {
    name: 'CiliumClusterwideNetworkPolicy',
    author: 'stranger',
    resource: of(resources.CiliumClusterwideNetworkPolicy),
    samples: [{ spec: plain }, { spec: rule }],
    fixed: ['status'],
  },
  { name: 'Namespace', author: 'stranger', resource: of(resources.Namespace), samples: [{ metadata: { labels: {} } }] },
  { name: 'Node', author: 'stranger', resource: of(resources.KubeNode), samples: [nodeObject] },
  { name: 'NodePolicyStatus', author: 'stranger', resource: of(resources.NodePolicyStatus), samples: [report] },
  {
    name: 'CiliumIdentity',
    author: 'stranger',
    resource: of(resources.CiliumIdentity),
    names: ['256', '300', '301', '65535', '16777215', 'none'],
    samples: [{ 'security-labels': labels }],
  },
  {
    name: 'PeerSet',
    author: 'stranger',
    resource: of(resources.PeerSet),
    samples: [{ spec: { hash: 'h', selector: { requirements: [] }, identities: [256, 257], slice: 0, slices: 1 } }],
  },
  {
    name: 'ResolvedPolicy',
    author: 'stranger',
    resource: of(resources.ResolvedPolicy),
    samples: [
      {
        spec: {
          source: {
            kind: 'CiliumNetworkPolicy',
            namespace: 'victim',
            name: 'web',
            uid: '§CiliumNetworkPolicy/victim/web§',
            generation: 1,
          },
          rules: [
            {
              subject: 'h',
              direction: 'ingress',
              verdict: 'allow',
              peers: [{ peerSet: 'h' }, { cidr: '10.0.0.0/8', except: ['10.0.1.0/24'] }, { entity: 'all' }],
              ports: [{ protocol: 'TCP', from: 1, to: 2 }],
              defaultDeny: true,
              cookie: 1,
              path: 'spec.ingress[0]',
            },
          ],
        },
        status: { conditions: [{ type: 'Ready', status: 'True', reason: 'Programmed', message: 'x' }] },
      },
    ],
  },
  {
    name: 'CiliumEndpointSlice',
    author: 'stranger',
    resource: of(resources.CiliumEndpointSlice),
    samples: [
      {
        metadata: { annotations: { [POD_UIDS_ANNOTATION]: '§Pod/victim/web§' } },
        namespace: 'victim',
        endpoints: [
          {
            name: 'web',
            id: 0,
            identity: 257,
            networking: { addressing: [{ ipv4: '10.0.1.1' }], node: NODE_ADDRESSES.n1 },
            'named-ports': [{ name: 'web', port: 80, protocol: 'TCP' }],
          },
        ],
      },
    ],
  },
];
