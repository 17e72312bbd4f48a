/** Services from `kubectl apply` to packets: policy judges the pod behind a Service's address. */
import { afterAll, beforeAll, expect, it } from '@jest/globals';
import { Cluster } from '../cluster/index.ts';
import { eventually } from '../eventually.ts';

const DNS = '10.96.0.10';

function service(name: string, address: string, port: number, protocol: 'TCP' | 'UDP'): object {
  return {
    apiVersion: 'v1',
    kind: 'Service',
    metadata: { name },
    spec: { clusterIP: address, clusterIPs: [address], ports: [{ port, protocol }] },
  };
}

function slice(name: string, addresses: readonly string[], port: number, protocol: 'TCP' | 'UDP'): object {
  return {
    apiVersion: 'discovery.k8s.io/v1',
    kind: 'EndpointSlice',
    metadata: { name: `${name}-1`, labels: { 'kubernetes.io/service-name': name } },
    addressType: 'IPv4',
    endpoints: addresses.map((address) => ({ addresses: [address], conditions: { ready: true } })),
    ports: [{ port, protocol }],
  };
}

const policy = {
  apiVersion: 'cilium.io/v2',
  kind: 'CiliumNetworkPolicy',
  metadata: { name: 'dns-only', namespace: 'default' },
  spec: {
    endpointSelector: { matchLabels: { app: 'client' } },
    egress: [
      {
        toEndpoints: [{ matchLabels: { 'k8s-app': 'kube-dns' } }],
        toPorts: [{ ports: [{ port: '53', protocol: 'UDP' }] }],
      },
    ],
  },
};

let cluster: Cluster;
beforeAll(async () => {
  cluster = await Cluster.start();
  await cluster.createPods([
    { name: 'client', labels: { app: 'client' }, node: 1 },
    { name: 'dns', labels: { 'k8s-app': 'kube-dns' }, node: 2, udp: [53] },
    { name: 'web', labels: { app: 'web' }, node: 2, udp: [53] },
  ]);
});
afterAll(() => cluster?.stop());

const address = async (pod: string): Promise<string> => (await cluster.host(pod)).address;
const asks = (): Promise<string> => cluster.probe('client', DNS, { port: 53, protocol: 'udp' });
/** For an answer that a process gives, not the kernel: it may have no core for a while. */
const PATIENT = { protocol: 'udp', timeoutMs: 60_000 } as const;

it('an allow of DNS to kube-dns works by its Service, and holds for whoever is behind it', async () => {
  await cluster.applyObjects([
    service('kube-dns', DNS, 53, 'UDP'),
    slice('kube-dns', [await address('dns')], 53, 'UDP'),
  ]);
  await eventually(asks, (result) => result === 'reached');
  await cluster.applyObjects([policy]);
  await cluster.programmed('cnp/dns-only');
  expect(await cluster.probe('client', DNS, { ...PATIENT, port: 53 })).toBe('reached');
  expect(await cluster.probe('client', 'web', { port: 53, protocol: 'udp' })).toBe('dropped');
  await cluster.applyObjects([slice('kube-dns', [await address('web')], 53, 'UDP')]);
  await eventually(asks, (result) => result === 'dropped');
  await cluster.applyObjects([slice('kube-dns', [], 53, 'UDP')]);
  await eventually(asks, (result) => result === 'refused');
});

it('a node port, and who answers by traffic policies, follow the API from pod to packet', async () => {
  const nodes = cluster.nodes.map((node) => node.address);
  const ask = (to: string, port: number): Promise<string> => cluster.probe('client', to, { port, protocol: 'udp' });
  const ports = [{ port: 53, protocol: 'UDP', nodePort: 30_053 }];
  const of = (spec: object): object => {
    const base = { clusterIP: '10.96.0.11', clusterIPs: ['10.96.0.11'], type: 'NodePort', ports };
    return { ...service('ports', '10.96.0.11', 53, 'UDP'), spec: { ...base, ...spec } };
  };
  const [, second = ''] = cluster.nodes.map(({ name }) => name);
  const its = (more: object): object => ({
    ...slice('ports', [], 53, 'UDP'),
    endpoints: [{ addresses: [dns], nodeName: second, conditions: { ready: true }, ...more }],
  });
  const dns = await address('dns');
  await cluster.applyObjects([of({}), its({})]);
  // Policy `dns-only` judges the pod behind the port of whatever node.
  for (const node of nodes)
    await eventually(
      () => ask(node, 30_053),
      (result) => result === 'reached',
    );
  // Backends of other nodes are none of the cluster address; node ports lead to them all the same.
  await cluster.applyObjects([of({ internalTrafficPolicy: 'Local', externalTrafficPolicy: 'Local' })]);
  await eventually(
    () => ask('10.96.0.11', 53),
    (result) => result === 'refused',
  );
  for (const node of nodes) expect(await cluster.probe('client', node, { ...PATIENT, port: 30_053 })).toBe('reached');
  await cluster.applyObjects([of({}), its({ conditions: { ready: false, serving: true, terminating: true } })]);
  await eventually(
    () => ask('10.96.0.11', 53),
    (result) => result === 'reached',
  );
});
