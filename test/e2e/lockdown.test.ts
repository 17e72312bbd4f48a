/** An administrator locks a namespace by a label of the namespace, and a pod of the tenant has as many labels as fit: no identity takes one more. */
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { MOST_LABELS } from '@weir/labels';
import { Cluster } from '../cluster/index.ts';
import { eventually } from '../eventually.ts';

const lockdown = {
  apiVersion: 'cilium.io/v2',
  kind: 'CiliumClusterwideNetworkPolicy',
  metadata: { name: 'lockdown' },
  spec: {
    endpointSelector: { matchLabels: { 'k8s:io.cilium.k8s.namespace.labels.locked': 'yes' } },
    ingressDeny: [{ fromEntities: ['all'] }],
    egressDeny: [{ toEntities: ['all'] }],
  },
};
/** Labels that an identity has beside those of the pod: its namespace's name, twice, the service account and the cluster. */
const BESIDE = 4;

describe('a pod that leaves no room for a label of its namespace', () => {
  let cluster: Cluster;
  beforeAll(async () => {
    cluster = await Cluster.start();
    await cluster.applyObjects([{ apiVersion: 'v1', kind: 'Namespace', metadata: { name: 'tenant' } }]);
    const labels = Object.fromEntries(Array.from({ length: MOST_LABELS - BESIDE }, (_, at) => [`l${at}`, 'x']));
    await cluster.createPods([
      { name: 'client', labels: { id: 'client' }, node: 2 },
      { name: 'plain', namespace: 'tenant', node: 1, tcp: [80] },
      { name: 'sly', namespace: 'tenant', labels, node: 1, tcp: [80] },
    ]);
    await cluster.applyObjects([lockdown]);
    await cluster.programmed('ccnp/lockdown');
  });
  afterAll(() => cluster?.stop());

  const reach = (): Promise<string[]> =>
    Promise.all([
      cluster.probe('client', 'tenant/plain'),
      cluster.probe('client', 'tenant/sly'),
      cluster.probe('tenant/sly', 'outside'),
    ]);
  const label = (...to: readonly string[]): Promise<string> => cluster.kubectl(['label', ...to, '--overwrite']);

  it('is locked with it, and says why it has no identity', async () => {
    expect(await reach()).toEqual(['reached', 'reached', 'reached']);
    await label('namespace', 'tenant', 'locked=yes');
    await eventually(reach, (results) => results.every((result) => result === 'dropped'));
    expect(await cluster.kubectl(['get', 'events', '-n', 'tenant'])).toContain('NoIdentity');
    // With an identity it is locked by the policy.
    await label('pod', 'sly', '-n', 'tenant', 'l0-');
    await eventually(
      () => cluster.kubectl(['get', 'ciliumendpoint', 'sly', '-n', 'tenant', '-o', 'jsonpath={.status.state}']),
      (state) => state === 'ready',
    );
    expect(await reach()).toEqual(['dropped', 'dropped', 'dropped']);
    await label('namespace', 'tenant', 'locked-');
    await eventually(reach, (results) => results.every((result) => result === 'reached'));
  });
});
