/** `toServices` from `kubectl apply` to packets. */
import { afterAll, beforeAll, expect, it } from '@jest/globals';
import type { ServiceModel } from '../../node-agent/api/models.ts';
import { Cluster } from '../cluster/index.ts';
import { eventually } from '../eventually.ts';

const ADDRESS = '10.96.0.20';
const PORT = 5432;

function service(selector: Readonly<Record<string, string>> | undefined): object {
  return {
    apiVersion: 'v1',
    kind: 'Service',
    metadata: { name: 'db', labels: { tier: 'data' } },
    spec: {
      clusterIP: ADDRESS,
      clusterIPs: [ADDRESS],
      ports: [{ port: PORT, protocol: 'TCP' }],
      ...(selector === undefined ? {} : { selector }),
    },
  };
}

function slice(address: string): object {
  return {
    apiVersion: 'discovery.k8s.io/v1',
    kind: 'EndpointSlice',
    metadata: { name: 'db-1', labels: { 'kubernetes.io/service-name': 'db' } },
    addressType: 'IPv4',
    endpoints: [{ addresses: [address], conditions: { ready: true } }],
    ports: [{ port: PORT, protocol: 'TCP' }],
  };
}

function policy(name: string, client: string, item: object): object {
  return {
    apiVersion: 'cilium.io/v2',
    kind: 'CiliumNetworkPolicy',
    metadata: { name, namespace: 'default' },
    spec: {
      endpointSelector: { matchLabels: { app: client } },
      egress: [{ toServices: [item], toPorts: [{ ports: [{ port: `${PORT}`, protocol: 'TCP' }] }] }],
    },
  };
}

let cluster: Cluster;
beforeAll(async () => {
  cluster = await Cluster.start();
  await cluster.createPods([
    { name: 'by-name', labels: { app: 'by-name' }, node: 1 },
    { name: 'by-label', labels: { app: 'by-label' }, node: 2 },
    { name: 'db', labels: { app: 'db' }, node: 2, tcp: [PORT, 80] },
    { name: 'other', labels: { app: 'other' }, node: 2, tcp: [PORT] },
  ]);
});
afterAll(() => cluster?.stop());

const CLIENTS = ['by-name', 'by-label'];
/** What both clients meet. */
const probes = (to: string, port = PORT): Promise<string[]> =>
  Promise.all(CLIENTS.map((client) => cluster.probe(client, to, { port, protocol: 'tcp' })));
const both = (result: string) => (results: readonly string[]) => results.every((each) => each === result);

it('reaches the pods that a Service selects, through it and beside it, and follows the Service', async () => {
  const [db, other] = [(await cluster.host('db')).address, (await cluster.host('other')).address];
  await cluster.applyObjects([
    policy('by-name', 'by-name', { k8sService: { serviceName: 'db', namespace: 'default' } }),
    policy('by-label', 'by-label', { k8sServiceSelector: { selector: { matchLabels: { tier: 'data' } } } }),
  ]);
  for (const name of CLIENTS) await cluster.programmed(`cnp/${name}`);
  // Nobody is meant while there is no such Service, whatever the ports.
  expect(await probes('db')).toEqual(['dropped', 'dropped']);
  await cluster.applyObjects([service({ app: 'db' }), slice(db)]);
  await eventually(() => probes(ADDRESS), both('reached'));
  expect(await probes('db')).toEqual(['reached', 'reached']);
  expect(await probes('db', 80)).toEqual(['dropped', 'dropped']);
  expect(await probes('other')).toEqual(['dropped', 'dropped']);

  // A slice that names a pod which the Service does not select opens nothing.
  await cluster.applyObjects([slice(other)]);
  await eventually(() => probes(ADDRESS), both('dropped'));
  expect(await probes('other')).toEqual(['dropped', 'dropped']);

  await cluster.applyObjects([service({ app: 'other' })]);
  await eventually(() => probes(ADDRESS), both('reached'));
  expect(await probes('db')).toEqual(['dropped', 'dropped']);
});

it('shows Services, their backends and who was behind one in `weir`', async () => {
  const node = cluster.node(1);
  const { stdout } = await node.weir(['service', 'list']);
  const { address } = await cluster.host('other');
  expect(stdout).toMatch(
    new RegExp(`^\\d+ +default/db +ClusterIP +${ADDRESS}:${PORT}/TCP +- +${address}:${PORT} +ok$`, 'm'),
  );
  const { stdout: json } = await node.weir(['service', 'get', 'default/db']);
  const [model] = JSON.parse(json) as readonly ServiceModel[];
  expect(model?.status.realized?.['backend-addresses']).toEqual([{ ip: address, port: PORT, protocol: 'tcp' }]);
  expect((await node.weir(['service', 'get', `${model?.spec.id}`])).code).toBe(0);
  expect((await node.weir(['service', 'get', 'default/none'])).code).toBe(2);

  await cluster.applyObjects([
    policy('by-name', 'by-name', { k8sService: { serviceName: 'gone', namespace: 'default' } }),
  ]);
  await eventually(
    () => cluster.probe('by-name', ADDRESS, { port: PORT, protocol: 'tcp' }),
    (result) => result === 'dropped',
  );
  const followed = async (): Promise<string> => {
    let isFollowing = true;
    const following = node.weir(['monitor', '--type', 'drop', '--timeout', '5s']).finally(() => {
      isFollowing = false;
    });
    while (isFollowing) await cluster.probe('by-name', ADDRESS, { port: PORT, protocol: 'tcp' });
    return (await following).stdout;
  };
  // A busy machine may let it hear nothing for all of its time.
  await eventually(followed, (text) =>
    text.includes(`-> ${address}:${PORT} (default/other, backend of default/db, identity`),
  );
});
