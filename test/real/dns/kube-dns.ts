/** Cluster DNS as clusters have it: CoreDNS as Deployment `kube-dns`, behind the Service address that kubelet writes into pods. */
import { cpSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { assetsFolder, type RealCluster, writeImages } from '../../cluster/real/index.ts';

const IMAGE = 'localhost/coredns:1';
const NAMESPACE = 'kube-system';
const LABELS = { 'k8s-app': 'kube-dns' };
/** Kubelet's `clusterDNS`. */
export const KUBE_DNS = '10.96.0.10';

/** @param outside addresses of names beyond the cluster; other names are not there (NXDOMAIN) */
export async function startKubeDns(cluster: RealCluster, outside: Readonly<Record<string, string>>): Promise<void> {
  const root = join(cluster.folder, 'coredns');
  mkdirSync(join(root, 'bin'), { recursive: true });
  cpSync(join(assetsFolder(), 'bin/coredns'), join(root, 'bin/coredns'));
  const tar = join(cluster.folder, 'coredns.tar');
  await writeImages([{ name: IMAGE, root, command: ['/bin/coredns', '-conf', '/etc/coredns/Corefile'] }], tar);
  await cluster.addImage(tar);
  await cluster.applyObjects(objects(outside));
  await cluster.kubectl(['rollout', 'status', '-n', NAMESPACE, 'deployment/kube-dns', '--timeout=120s']);
}

const corefile = (outside: Readonly<Record<string, string>>): string => `.:53 {
  errors
  ready
  kubernetes cluster.local
  hosts {
${Object.entries(outside)
  .map(([name, address]) => `    ${address} ${name}`)
  .join('\n')}
    ttl 60
    fallthrough
  }
  template ANY ANY {
    rcode NXDOMAIN
  }
}
`;

function objects(outside: Readonly<Record<string, string>>): object[] {
  const named = { name: 'kube-dns', namespace: NAMESPACE };
  const group = 'rbac.authorization.k8s.io';
  const reads = (apiGroup: string, ...resources: string[]) => ({
    apiGroups: [apiGroup],
    resources,
    verbs: ['list', 'watch'],
  });
  const port = (protocol: string) => ({ name: `dns-${protocol.toLowerCase()}`, port: 53, protocol });
  return [
    { apiVersion: 'v1', kind: 'ServiceAccount', metadata: named },
    {
      apiVersion: `${group}/v1`,
      kind: 'ClusterRole',
      metadata: { name: 'kube-dns' },
      rules: [reads('', 'endpoints', 'services', 'pods', 'namespaces'), reads('discovery.k8s.io', 'endpointslices')],
    },
    {
      apiVersion: `${group}/v1`,
      kind: 'ClusterRoleBinding',
      metadata: { name: 'kube-dns' },
      roleRef: { apiGroup: group, kind: 'ClusterRole', name: 'kube-dns' },
      subjects: [{ kind: 'ServiceAccount', ...named }],
    },
    { apiVersion: 'v1', kind: 'ConfigMap', metadata: named, data: { Corefile: corefile(outside) } },
    {
      apiVersion: 'v1',
      kind: 'Service',
      metadata: named,
      spec: { clusterIP: KUBE_DNS, selector: LABELS, ports: [port('UDP'), port('TCP')] },
    },
    {
      apiVersion: 'apps/v1',
      kind: 'Deployment',
      metadata: named,
      spec: {
        replicas: 2,
        selector: { matchLabels: LABELS },
        template: { metadata: { labels: LABELS }, spec: pod },
      },
    },
  ];
}

const pod = {
  serviceAccountName: 'kube-dns',
  dnsPolicy: 'Default',
  // One a node: each client has a server on its node, and one beyond.
  topologySpreadConstraints: [
    {
      maxSkew: 1,
      topologyKey: 'kubernetes.io/hostname',
      whenUnsatisfiable: 'DoNotSchedule',
      labelSelector: { matchLabels: LABELS },
    },
  ],
  containers: [
    {
      name: 'coredns',
      image: IMAGE,
      imagePullPolicy: 'Never',
      ports: [
        { containerPort: 53, protocol: 'UDP' },
        { containerPort: 53, protocol: 'TCP' },
      ],
      readinessProbe: { httpGet: { path: '/ready', port: 8181 }, periodSeconds: 1 },
      volumeMounts: [{ name: 'config', mountPath: '/etc/coredns', readOnly: true }],
    },
  ],
  volumes: [{ name: 'config', configMap: { name: 'kube-dns' } }],
};
