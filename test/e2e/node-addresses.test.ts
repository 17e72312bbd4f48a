/** Every address of a node is the node: `host` to its own pods, `remote-node` to others, from when the kernel has it. */
import { afterAll, beforeAll, expect, it } from '@jest/globals';
import { familyOf } from '@weir/net';
import { netnsPath } from '../cluster/fabric.ts';
import { Cluster } from '../cluster/index.ts';
import { arrives } from '../cluster/raw.ts';
import { ipBatch } from '../cluster/run.ts';
import { eventually } from '../eventually.ts';

/** Of a second interface of node 1, and of a virtual address that moves. */
const SECOND = '192.0.2.77';
const SECOND6 = '2001:db8:77::1';
const VIRTUAL = '192.0.2.200';
/** Of the routers of the second interface's network. */
const ANYCAST = '2001:db8:77::';
/** As node 1 announces them. */
const ALL = [SECOND, ANYCAST, SECOND6].join();
const PODS = ['near', 'far'];

let cluster: Cluster;
const onNode = (node: number, ...lines: readonly string[]): Promise<unknown> =>
  ipBatch(lines, netnsPath(cluster.node(node).netns));
const apply = async (...entities: readonly string[]): Promise<void> => {
  await cluster.applyObjects([
    {
      apiVersion: 'cilium.io/v2',
      kind: 'CiliumNetworkPolicy',
      metadata: { name: 'pods', namespace: 'default' },
      spec: { endpointSelector: {}, egress: [{ toEntities: entities }] },
    },
  ]);
  await cluster.programmed('cnp/pods');
};
const probes = (to: string): Promise<string[]> =>
  Promise.all(PODS.map(async (name) => `${name} ${await cluster.probe(name, to)}`));
const become = (to: string, ...expected: readonly string[]): Promise<unknown> =>
  eventually(
    () => probes(to),
    (found) => found.join() === expected.join(),
  );
const annotation = async (node: string): Promise<string> =>
  await cluster.kubectl(['get', 'node', node, '-o', 'jsonpath={.metadata.annotations.weir\\.dev/addresses}']);

beforeAll(async () => {
  cluster = await Cluster.start();
  await onNode(
    1,
    ...['link add second type bridge', 'link set second up'],
    ...[`addr add ${SECOND}/32 dev second`, `addr add ${SECOND6}/64 dev second nodad`],
  );
  const [first, first6] = (await cluster.host('node-1')).addresses;
  await onNode(2, `route add ${SECOND} via ${first}`, `route add ${ANYCAST}/64 via ${first6}`);
  for (const name of ['node-1', 'node-2']) {
    const { process } = await cluster.host(name);
    await process.serve(name, [80], []);
  }
  await cluster.createPods([
    { name: 'near', node: 1 },
    { name: 'far', node: 2 },
  ]);
});
afterAll(() => cluster?.stop());

it.each([SECOND, SECOND6])('%s is host on its node, remote-node on others, and world on none', async (address) => {
  await cluster.kubectl(['delete', 'cnp', '--all']);
  await become(address, 'near reached', 'far reached');
  await eventually(
    () => annotation('node-1'),
    (text) => text === ALL,
  );
  expect(await annotation('node-2')).toBe('');
  await apply('world');
  await become(address, 'near dropped', 'far dropped');
  expect(await cluster.probe('near', 'outside', { family: familyOf(address) })).toBe('reached');
  await apply('host');
  await become(address, 'near reached', 'far dropped');
  await apply('remote-node');
  await become(address, 'near dropped', 'far reached');
});

it('a virtual address that moves between nodes is followed', async () => {
  await apply('host');
  const use = async (node: number, other: number): Promise<void> => {
    await onNode(node, `addr add ${VIRTUAL}/32 dev eth0`);
    await onNode(other, `route replace ${VIRTUAL} via ${cluster.node(node).address}`);
  };
  await use(1, 2);
  await become(VIRTUAL, 'near reached', 'far dropped');
  await eventually(
    () => annotation('node-1'),
    (text) => text === [VIRTUAL, SECOND, ANYCAST, SECOND6].toSorted().join(),
  );
  await onNode(1, `addr del ${VIRTUAL}/32 dev eth0`);
  await onNode(2, `route del ${VIRTUAL}`);
  await use(2, 1);
  await become(VIRTUAL, 'near dropped', 'far reached');
  await eventually(
    () => annotation('node-1'),
    (text) => text === ALL,
  );
  await eventually(
    () => annotation('node-2'),
    (text) => text === VIRTUAL,
  );
});

it('is reached at broadcast and anycast addresses of its networks by whom policies let reach it, and by no others', async () => {
  const VRRP = 112;
  const [from, to] = [cluster.sandbox('near').netns, cluster.node(1).netns];
  const hears = (): Promise<boolean[]> =>
    Promise.all(['172.30.0.255', ANYCAST].map((address) => arrives({ from, to, address }, VRRP)));
  await cluster.kubectl(['delete', 'cnp', '--all']);
  await eventually(hears, (all) => all.every((one) => one));
  await apply('world');
  expect(await hears()).toEqual([false, false]);
  await apply('host');
  expect(await hears()).toEqual([true, true]);
});

it('so it is by pods of other nodes', async () => {
  const VRRP = 112;
  const ends = { from: cluster.sandbox('far').netns, to: cluster.node(1).netns, address: ANYCAST };
  await apply('remote-node');
  await eventually(
    () => arrives(ends, VRRP),
    (heard) => heard,
  );
  await apply('world');
  expect(await arrives(ends, VRRP)).toBe(false);
});

it('the broadcast address of its network is the node, and what kube-proxy keeps at kube-ipvs0 is not', async () => {
  await onNode(
    1,
    'link add kube-ipvs0 type bridge',
    'addr add 192.0.2.10/32 dev kube-ipvs0',
    'addr add 192.0.2.11/32 dev lo',
  );
  const sources = await eventually(
    async () => {
      const { stdout } = await cluster.node(1).weir(['table', 'get', 'ipcache', '-o', 'json']);
      const [, ...lines] = stdout.trim().split('\n');
      const rows = lines.map((line) => (JSON.parse(line) as { row: { prefix: string; identity: number } }).row);
      return Object.fromEntries(rows.map(({ prefix, identity }) => [prefix, identity]));
    },
    (found) => found['192.0.2.11/32'] === 1,
  );
  // An interface that forwards has the anycast address of its network's routers.
  expect(sources).toMatchObject({ '172.30.0.255/32': 1, [`${SECOND}/32`]: 1, [`${ANYCAST}/128`]: 1 });
  expect(sources['192.0.2.10/32']).toBeUndefined();
});
