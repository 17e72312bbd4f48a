/** What a tenant writes into its pods' status, and what a taken node says of itself, changes nothing for the packets of others. */
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import type { IpcacheRow } from '../../node-agent/tables.ts';
import { Cluster } from '../cluster/index.ts';
import { eventually } from '../eventually.ts';

const API_SERVER = '198.51.100.7';
/** A node that nobody runs: who knows its address knows what was written of nodes before. */
const MARK = { name: 'mark', address: '198.51.100.99' };

const policy = (name: string, subject: string, ingress: readonly object[]): object => ({
  apiVersion: 'cilium.io/v2',
  kind: 'CiliumNetworkPolicy',
  metadata: { name, namespace: 'default' },
  spec: { endpointSelector: { matchLabels: { id: subject } }, ingress },
});
const pods = (...ids: readonly string[]): object => ({
  fromEndpoints: ids.map((id) => ({ matchLabels: { id } })),
});

describe('an address that somebody claims who does not have it', () => {
  let cluster: Cluster;
  beforeAll(async () => {
    cluster = await Cluster.start();
    await cluster.applyObjects([
      { apiVersion: 'v1', kind: 'Namespace', metadata: { name: 'tenant' } },
      {
        apiVersion: 'discovery.k8s.io/v1',
        kind: 'EndpointSlice',
        metadata: { name: 'kubernetes', namespace: 'default', labels: { 'kubernetes.io/service-name': 'kubernetes' } },
        addressType: 'IPv4',
        ports: [],
        endpoints: [{ addresses: [API_SERVER] }],
      },
    ]);
    await cluster.createPods([
      { name: 'web', labels: { id: 'web' }, node: 1, tcp: [80] },
      { name: 'api', labels: { id: 'api' }, node: 1, tcp: [80] },
      { name: 'near', labels: { id: 'near' }, node: 1 },
      { name: 'far', labels: { id: 'far' }, node: 2 },
      { name: 'liar', namespace: 'tenant', node: 2 },
      { name: 'guest', namespace: 'tenant', node: 2 },
    ]);
    await cluster.applyObjects([
      policy('web', 'web', [
        pods('near', 'far'),
        { fromEndpoints: [{ matchLabels: { 'k8s:io.kubernetes.pod.namespace': 'tenant' } }] },
      ]),
      policy('api', 'api', [{ fromEntities: ['kube-apiserver'] }]),
    ]);
    await cluster.programmed('cnp/web', 'cnp/api');
  });
  afterAll(() => cluster?.stop());

  const patchStatus = (what: readonly string[], status: object): Promise<string> =>
    cluster.kubectl(['patch', ...what, '--subresource=status', '--type=merge', '-p', JSON.stringify({ status })]);
  /** Waits until node 1 judges packets by an ipcache in which this holds. */
  const known = (check: (rows: readonly IpcacheRow[]) => boolean): Promise<unknown> =>
    eventually(async () => {
      const { stdout } = await cluster.node(1).weir(['table', 'get', 'ipcache', '-o', 'json']);
      const [, ...lines] = stdout.trim().split('\n');
      return lines.map((line) => (JSON.parse(line) as { readonly row: IpcacheRow }).row);
    }, check);
  const who = async (to: string, ...from: readonly string[]): Promise<string[]> => {
    const results = await Promise.all(from.map(async (name) => `${name} ${await cluster.probe(name, to)}`));
    return results;
  };
  const asBefore = async (): Promise<void> => {
    expect(await who('web', 'near', 'far', 'outside', 'node-2')).toEqual([
      'near reached',
      'far reached',
      'outside dropped',
      'node-2 dropped',
    ]);
    expect(await who('api', 'node-2', 'far')).toEqual(['node-2 dropped', 'far dropped']);
  };

  it('in the status of a pod: a victim keeps it, and an outside host gets no identity by it', async () => {
    await asBefore();
    const [liar, guest, far, outside] = await Promise.all(
      ['tenant/liar', 'tenant/guest', 'far', 'outside'].map(async (name) => (await cluster.host(name)).address),
    );
    for (const [name, ip] of [
      ['liar', far],
      ['guest', outside],
    ] as const)
      await patchStatus(['pod', name, '-n', 'tenant'], { podIP: ip, podIPs: [{ ip }] });
    await known((rows) => !rows.some(({ prefix }) => prefix === `${liar}/32` || prefix === `${guest}/32`));
    await asBefore();
  });

  it.each<[string, () => Promise<string> | string]>([
    ['a pod on its node', async () => (await cluster.host('far')).address],
    ['a pod on another node', async () => (await cluster.host('near')).address],
    ['the API server', () => API_SERVER],
  ])('in the status of a node, of %s: pods stay pods, and the node is no API server', async (_, claimed) => {
    const report = (node: string, ...all: readonly [type: string, address: string][]): Promise<string> =>
      patchStatus(['node', node], { addresses: all.map(([type, address]) => ({ type, address })) });
    await cluster.applyObjects([{ apiVersion: 'v1', kind: 'Node', metadata: { name: MARK.name } }]);
    await report('node-2', ['InternalIP', cluster.node(2).address], ['ExternalIP', await claimed()]);
    await report(MARK.name, ['InternalIP', MARK.address]);
    await known((rows) => rows.some(({ prefix }) => prefix === `${MARK.address}/32`));
    await asBefore();
    await cluster.kubectl(['delete', 'node', MARK.name]);
    await known((rows) => !rows.some(({ prefix }) => prefix === `${MARK.address}/32`));
  });
});
