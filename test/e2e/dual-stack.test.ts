/** Pods have addresses of both families, wherever they are shown, and reach each other by both. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { Cluster } from '../cluster/index.ts';

let cluster: Cluster;
beforeAll(async () => {
  cluster = await Cluster.start();
  await cluster.createPods([
    { name: 'here', node: 1, tcp: [80], udp: [53] },
    { name: 'beside', node: 1, tcp: [80], udp: [53] },
    { name: 'there', node: 2, tcp: [80], udp: [53] },
  ]);
});
afterAll(() => cluster?.stop());

test.each([4, 6] as const)('by IPv%i each reaches each, its nodes and the outside', async (family) => {
  const options = { family, timeoutMs: 60_000 } as const;
  for (const from of ['here', 'there', 'node-1', 'outside'])
    for (const to of ['beside', 'there', 'here'])
      if (from !== to) {
        expect([from, to, await cluster.probe(from, to, options)]).toEqual([from, to, 'reached']);
        expect(await cluster.probe(from, to, { ...options, protocol: 'udp', port: 53 })).toBe('reached');
      }
  for (const from of ['here', 'there']) expect(await cluster.probe(from, 'outside', options)).toBe('reached');
  expect(await cluster.probe('here', 'node-2', { ...options, port: 9 })).toBe('refused');
});

test('both are in the pod, its CiliumEndpoint, its slice, and the addresses that each node judges by', async () => {
  const { addresses } = await cluster.host('there');
  expect(addresses).toEqual(['10.244.2.2', 'fd00:10:244:2::2']);
  const [ipv4 = '', ipv6 = ''] = addresses;
  const json = async (...args: string[]): Promise<unknown> =>
    JSON.parse(await cluster.kubectl([...args, '-o', 'json']));
  expect(await json('get', 'pod', 'there')).toMatchObject({
    status: { podIP: ipv4, podIPs: [{ ip: ipv4 }, { ip: ipv6 }] },
  });
  const addressing = [{ ipv4, ipv6 }];
  expect(await json('get', 'cep', 'there')).toMatchObject({ status: { networking: { addressing } } });
  expect(await cluster.kubectl(['get', 'cep', 'there'])).toMatch(/ 10\.244\.2\.2 +fd00:10:244:2::2\s*$/);
  const slices = (await json('get', 'ces')) as { items: { endpoints: { name: string; networking: object }[] }[] };
  const sliced = slices.items.flatMap(({ endpoints }) => endpoints).find(({ name }) => name === 'there');
  expect(sliced?.networking).toMatchObject({ addressing });
  for (const node of cluster.nodes) {
    const { body } = await node.call('GET', '/v1/ip');
    const rows = new Map((body as { cidr: string; identity: number }[]).map(({ cidr, identity }) => [cidr, identity]));
    expect(rows.get(`${ipv4}/32`)).toBeGreaterThanOrEqual(256);
    expect(rows.get(`${ipv6}/128`)).toBe(rows.get(`${ipv4}/32`));
    expect(rows.get('fd00:10:244:1::/64')).toBe(0);
    expect(rows.get('fd00:172:30::12/128')).toBe(node.name === 'node-2' ? 1 : 6);
  }
  const list = await cluster.node(2).weir(['endpoint', 'list']);
  expect(list.stdout).toMatch(/10\.244\.2\.2 +fd00:10:244:2::2 +ready +default\/there/);
  const one = await cluster.node(2).weir(['endpoint', 'get', `ipv6:${ipv6}`]);
  expect(JSON.parse(one.stdout)).toMatchObject({ status: { networking: { addressing } } });
  const status = await cluster.node(2).weir(['status']);
  expect(status.stdout).toContain('IPv4: 1 allocated from 10.244.2.0/24; IPv6: 1 allocated from fd00:10:244:2::/64');
});

test('a cluster of IPv6 alone works as well, and policies hold in it', async () => {
  const six = await Cluster.start({ families: [6] });
  try {
    await six.createPods([
      { name: 'server', labels: { app: 'server' }, node: 1, tcp: [80] },
      { name: 'friend', labels: { app: 'friend' }, node: 2, tcp: [80] },
      { name: 'stranger', labels: { app: 'stranger' }, node: 1, tcp: [80] },
    ]);
    expect((await six.host('server')).addresses).toEqual(['fd00:10:244:1::2']);
    const probes = async (timeoutMs: number) =>
      Promise.all(['friend', 'stranger', 'node-2'].map((from) => six.probe(from, 'server', { timeoutMs })));
    expect(await probes(60_000)).toEqual(['reached', 'reached', 'reached']);
    await six.applyObjects([
      {
        apiVersion: 'cilium.io/v2',
        kind: 'CiliumNetworkPolicy',
        metadata: { name: 'friends', namespace: 'default' },
        spec: {
          endpointSelector: { matchLabels: { app: 'server' } },
          ingress: [{ fromEndpoints: [{ matchLabels: { app: 'friend' } }] }],
        },
      },
    ]);
    await six.programmed('cnp/friends');
    expect(await six.probe('friend', 'server', { timeoutMs: 60_000 })).toBe('reached');
    expect(await six.probe('stranger', 'server')).toBe('dropped');
    expect(await six.probe('node-2', 'server')).toBe('dropped');
  } finally {
    await six.stop();
  }
});
