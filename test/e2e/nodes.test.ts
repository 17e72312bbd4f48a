/** `fromNodes` and `toNodes` from `kubectl apply` to packets: nodes by their labels, as they change. */
import { afterAll, beforeAll, expect, it } from '@jest/globals';
import { Cluster } from '../cluster/index.ts';
import { eventually } from '../eventually.ts';

const NODES = ['node-1', 'node-2', 'node-3'];

let cluster: Cluster;
beforeAll(async () => {
  cluster = await Cluster.start({ nodes: 3 });
  await cluster.createPods([{ name: 'web', labels: { app: 'web' }, node: 1, tcp: [80] }]);
  for (const name of NODES) await (await cluster.host(name)).process.serve(name, [80], []);
});
afterAll(() => cluster?.stop());

const apply = async (lists: object): Promise<void> => {
  await cluster.applyObjects([
    {
      apiVersion: 'cilium.io/v2',
      kind: 'CiliumNetworkPolicy',
      metadata: { name: 'nodes', namespace: 'default' },
      spec: { endpointSelector: {}, ...lists },
    },
  ]);
  await cluster.programmed('cnp/nodes');
};
const label = (node: string, text: string): Promise<string> =>
  cluster.kubectl(['label', '--overwrite', 'node', node, text]);
/** Of each node: whether the pod reaches it, by an address of the family. */
const reached = async (family: 4 | 6 = 4): Promise<string> =>
  (await Promise.all(NODES.map((node) => cluster.probe('web', node, { family })))).map(shortly).join();
/** Of each node: whether it reaches the pod. */
const reaching = async (): Promise<string> =>
  (await Promise.all(NODES.map((node) => cluster.probe(node, 'web')))).map(shortly).join();
const shortly = (result: string): string => (result === 'reached' ? '+' : '-');
const become = (ask: () => Promise<string>, expected: string): Promise<string> =>
  eventually(ask, (found) => found === expected);
const zone = (name: string) => ({ matchLabels: { zone: name } });

it('reaches other nodes that have the labels, in both families, and never its own by them', async () => {
  await label('node-1', 'zone=a');
  await label('node-2', 'zone=a');
  await apply({ egress: [{ toNodes: [zone('a')] }] });
  await become(() => reached(), '-,+,-');
  expect(await reached(6)).toBe('-,+,-');
  await label('node-3', 'zone=a');
  await become(() => reached(), '-,+,+');
  await label('node-2', 'zone=b');
  await become(() => reached(), '-,-,+');
  await label('node-3', 'zone-');
  await become(() => reached(), '-,-,-');
});

it('denies some nodes of all, and asks for ports', async () => {
  await apply({ egress: [{ toEntities: ['all'] }], egressDeny: [{ toNodes: [zone('b')] }] });
  await become(() => reached(), '+,-,+');
  await apply({ egress: [{ toNodes: [{}], toPorts: [{ ports: [{ port: '81', protocol: 'TCP' }] }] }] });
  await become(() => reached(), '-,-,-');
  await apply({ egress: [{ toNodes: [{}], toPorts: [{ ports: [{ port: '80', protocol: 'TCP' }] }] }] });
  await become(() => reached(), '-,+,+');
});

it('is reached from them, and from its own node in any case', async () => {
  await apply({ ingress: [{ fromNodes: [zone('b')] }] });
  await become(reaching, '+,+,-');
  await apply({
    ingress: [{ fromEntities: ['remote-node'] }],
    ingressDeny: [{ fromNodes: [{ matchExpressions: [{ key: 'zone', operator: 'DoesNotExist' }] }] }],
  });
  await become(reaching, '+,+,-');
});

it('judges nodes as before while an agent is down, and after', async () => {
  await apply({ egress: [{ toNodes: [zone('b')] }] });
  await become(() => reached(), '-,+,-');
  const [first] = cluster.nodes;
  await first?.stopAgentIfStarted();
  expect(await reached()).toBe('-,+,-');
  await first?.startAgent();
  await label('node-3', 'zone=b');
  await become(() => reached(), '-,+,+');
});
