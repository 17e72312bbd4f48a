/** No operator leads: new pods stay unknown to other nodes, and every display of the agent says why. */
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { Cluster } from '../cluster/index.ts';
import { eventually } from '../eventually.ts';

const policies = [
  {
    apiVersion: 'cilium.io/v2',
    kind: 'CiliumNetworkPolicy',
    metadata: { name: 'srv', namespace: 'default' },
    spec: {
      endpointSelector: { matchLabels: { app: 'srv' } },
      ingress: [{ fromEndpoints: [{ matchLabels: { app: 'w' } }] }],
    },
  },
  {
    apiVersion: 'cilium.io/v2',
    kind: 'CiliumNetworkPolicy',
    metadata: { name: 'w', namespace: 'default' },
    spec: {
      endpointSelector: { matchLabels: { app: 'w' } },
      egress: [{ toEndpoints: [{ matchLabels: { app: 'srv' } }] }],
    },
  },
];

describe('no operator leads', () => {
  let cluster: Cluster;
  beforeAll(async () => {
    cluster = await Cluster.start();
    await cluster.createPods([
      { name: 'srv', labels: { app: 'srv' }, node: 2, tcp: [80] },
      { name: 'srvn', labels: { app: 'srv' }, node: 1, tcp: [80] },
      { name: 'w-0', labels: { app: 'w' }, node: 1 },
    ]);
    await cluster.applyObjects(policies);
    await cluster.programmed('cnp/srv', 'cnp/w');
  });
  afterAll(() => cluster?.stop());

  async function status(node: number): Promise<string> {
    return (await cluster.node(node).weir(['status'])).stdout;
  }

  async function problem(node: number): Promise<string> {
    const path = '{range .status.conditions[?(@.type=="WeirProblem")]}{.status} {.reason}{end}';
    return await cluster.kubectl(['get', 'node', cluster.node(node).name, '-o', `jsonpath=${path}`]);
  }

  it('each node says so, and says that it is over', async () => {
    expect(
      await eventually(
        () => status(1),
        (text) => /^Operator: +Ok +.* leads$/m.test(text),
      ),
    ).toMatch(/leads$/m);
    await cluster.operator.kill9();
    await cluster.createPods([
      { name: 'w-1', labels: { app: 'w' }, node: 1 },
      { name: 'srv-new', labels: { app: 'srv' }, node: 2, tcp: [80] },
    ]);
    expect(await cluster.probe('w-1', 'srvn')).toBe('reached');
    expect(await cluster.probe('w-1', 'srv')).toBe('dropped');
    expect(await cluster.probe('w-0', 'srv-new')).toBe('dropped');
    const isOut = (text: string): boolean => text.includes('no operator has led for');
    for (const node of [1, 2]) {
      expect(await eventually(() => status(node), isOut, 120)).toMatch(
        /^Operator: +Warning +no operator has led for \d+ s: the last one, operator-.*, renewed Lease default\/weir-operator-heartbeat at .*unknown to other nodes/m,
      );
      const named = (text: string): boolean => text !== '';
      expect(await eventually(() => problem(node), named, 120)).toBe('True NoOperatorLeads');
    }
    cluster.startOperator();
    const reached = (result: string): boolean => result === 'reached';
    expect(await eventually(() => cluster.probe('w-1', 'srv'), reached)).toBe('reached');
    expect(await eventually(() => cluster.probe('w-0', 'srv-new'), reached)).toBe('reached');
    expect(
      await eventually(
        () => status(1),
        (text) => !isOut(text),
      ),
    ).toMatch(/^Operator: +Ok +.* leads$/m);
    const over = (text: string): boolean => text.startsWith('False');
    expect(await eventually(() => problem(1), over, 120)).toBe('False NoProblem');
  });
});
