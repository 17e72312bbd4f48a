/** `weir explain` on a node of a cluster: it says what packets meet. */
import { afterAll, beforeAll, expect, it } from '@jest/globals';
import type { FlowExplanation } from '../../node-agent/api/models.ts';
import { Cluster } from '../cluster/index.ts';

let cluster: Cluster;
beforeAll(async () => {
  cluster = await Cluster.start();
  await cluster.createPods([
    { name: 'web', labels: { app: 'web' }, node: 1, tcp: [80, 81] },
    { name: 'api', labels: { app: 'api' }, node: 2 },
    { name: 'other', labels: { app: 'other' }, node: 1 },
  ]);
  await cluster.applyObjects([
    {
      apiVersion: 'cilium.io/v2',
      kind: 'CiliumNetworkPolicy',
      metadata: { name: 'web', namespace: 'default' },
      spec: {
        endpointSelector: { matchLabels: { app: 'web' } },
        ingress: [
          {
            fromEndpoints: [{ matchLabels: { app: 'api' } }],
            toPorts: [{ ports: [{ port: '80', protocol: 'TCP' }] }],
          },
        ],
      },
    },
  ]);
  await cluster.programmed('cnp/web');
});
afterAll(() => cluster?.stop());

it.each([
  ['api', 80, 'reached'],
  ['api', 81, 'dropped'],
  ['other', 80, 'dropped'],
] as const)('%s -> web:%i is %s, by policies, by the kernel, and by packets', async (client, port, result) => {
  const { code, stdout, stderr } = await cluster
    .node(1)
    .weir(['explain', `default/${client}`, 'default/web', `${port}`, '-o', 'json']);
  const { ends, verdict } = JSON.parse(stdout) as FlowExplanation;
  const wanted = result === 'reached' ? 'allowed' : 'denied';
  expect([code, stderr, verdict]).toEqual([result === 'reached' ? 0 : 1, '', wanted]);
  // Of a pod of another node that node judges what it sends.
  expect(ends.map(({ direction }) => direction)).toEqual(client === 'api' ? ['ingress'] : ['egress', 'ingress']);
  expect(ends.at(-1)).toMatchObject({ verdict: wanted, kernel: { verdict: wanted } });
  const rule = { policy: 'CiliumNetworkPolicy default/web', path: 'spec.ingress[0]', says: 'allow' };
  expect(ends.at(-1)).toMatchObject(result === 'reached' ? { deciding: [rule] } : { deciding: [], selecting: [rule] });
  expect(await cluster.probe(client, 'web', { port, protocol: 'tcp' })).toBe(result);
});

it.each([
  ['host', 'allowed', 'localhost'],
  ['world', 'denied', 'no-match'],
  ['remote-node', 'denied', 'no-match'],
])('%s -> web is %s: %s', async (source, verdict, reason) => {
  const { stdout } = await cluster.node(1).weir(['explain', source, 'default/web', '80', '-o', 'json']);
  const { ends } = JSON.parse(stdout) as FlowExplanation;
  expect(ends).toMatchObject([{ direction: 'ingress', verdict, reason, kernel: { verdict } }]);
});
