import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { type CiliumEndpoint, resources } from '@weir/kube';
import { createStateDB } from '@weir/statedb';
import { GarbageCollector } from '../../operator/kubernetes/garbage.ts';
import { namespace, node, pod, report } from '../../operator/testing.ts';
import { createWorld, eventually, type World } from './world.ts';

const GRACE = 300_000;
let world: World;
let now: number;
let deleted: string[];
let errors: Error[];

beforeEach(async () => {
  world = await createWorld();
  now = 1_000_000;
  deleted = [];
  errors = [];
  await world.client.create(resources.Namespace, namespace('a'));
});
afterEach(() => world.stop());

function collector(hasPod: (namespace: string, name: string) => boolean = () => false): GarbageCollector {
  return new GarbageCollector({
    db: createStateDB({ freeze: true }),
    client: world.client,
    hasPod,
    graceMs: GRACE,
    intervalMs: GRACE,
    now: () => now,
    onDeleted: (resource, key) => deleted.push(`${resource} ${key}`),
    onError: (error) => errors.push(error),
  });
}

const endpoint = (name: string, at: string): CiliumEndpoint => ({
  apiVersion: 'cilium.io/v2',
  kind: 'CiliumEndpoint',
  metadata: { namespace: 'a', name },
  status: {
    id: 1,
    identity: { id: 300, labels: [] },
    networking: { addressing: [{ ipv4: '10.0.0.1' }], node: at },
    policy: { ingress: { enforcing: false, state: 'ok' }, egress: { enforcing: false, state: 'ok' } },
    state: 'ready',
  },
});
const createEndpoint = (name: string, at: string): Promise<CiliumEndpoint> =>
  world.client.create(resources.CiliumEndpoint, endpoint(name, at));

describe('garbage', () => {
  it('goes on where somebody wrote an endpoint that says nothing of its network', async () => {
    const said = {
      apiVersion: 'cilium.io/v2',
      kind: 'CiliumEndpoint',
      metadata: { namespace: 'a', name: 'a-bare' },
      status: {},
    };
    await world.client.create(resources.CiliumEndpoint, said as CiliumEndpoint);
    await createEndpoint('orphan', 'n1');
    const garbage = collector();
    await garbage.sweep();
    expect(deleted).toEqual(['ciliumendpoints a/orphan']);
    now += GRACE;
    await garbage.sweep();
    expect(deleted).toEqual(['ciliumendpoints a/orphan', 'ciliumendpoints a/a-bare']);
    expect(errors).toEqual([]);
  });

  it('takes the status of a deleted node after the grace period, and no other', async () => {
    for (const name of ['n1', 'n2']) {
      await world.client.create(resources.KubeNode, node(name));
      await world.client.create(resources.NodePolicyStatus, report(name, {}));
    }
    await world.client.delete(resources.KubeNode, 'n2');
    const garbage = collector();
    await garbage.sweep();
    now += GRACE - 1;
    await garbage.sweep();
    expect(deleted).toEqual([]);
    now += 1;
    await garbage.sweep();
    expect(deleted).toEqual(['nodepolicystatuses n2']);
    expect((await world.client.list(resources.NodePolicyStatus)).items.map((i) => i.metadata.name)).toEqual(['n1']);
  });

  it('starts the grace period again when the node came back in between', async () => {
    await world.client.create(resources.NodePolicyStatus, report('n1', {}));
    const garbage = collector();
    await garbage.sweep();
    now += GRACE / 2;
    await world.client.create(resources.KubeNode, node('n1'));
    await garbage.sweep();
    await world.client.delete(resources.KubeNode, 'n1');
    now += GRACE / 2;
    await garbage.sweep();
    expect(deleted).toEqual([]);
    now += GRACE;
    await garbage.sweep();
    expect(deleted).toEqual(['nodepolicystatuses n1']);
  });

  it('takes an endpoint without a pod after the grace period, at once when its node is gone too', async () => {
    await world.client.create(resources.KubeNode, node('n1'));
    await world.client.create(resources.Pod, pod('a/lives', {}, { node: 'n1' }));
    await createEndpoint('lives', 'n1');
    await createEndpoint('left', 'n1');
    await createEndpoint('lost', 'n2');
    const garbage = collector((_, name) => name === 'lives');
    await garbage.sweep();
    expect(deleted).toEqual(['ciliumendpoints a/lost']);
    now += GRACE;
    await garbage.sweep();
    expect(deleted).toEqual(['ciliumendpoints a/lost', 'ciliumendpoints a/left']);
    expect((await world.client.list(resources.CiliumEndpoint)).items.map((i) => i.metadata.name)).toEqual(['lives']);
  });

  it('believes the API server, not a watch that lags', async () => {
    await world.client.create(resources.Pod, pod('a/new', {}));
    await createEndpoint('new', 'n9');
    const garbage = collector(() => false);
    await garbage.sweep();
    now += GRACE;
    await garbage.sweep();
    expect(deleted).toEqual([]);
    expect(errors).toEqual([]);
  });

  it('reports what it may not do, and does the rest', async () => {
    await createEndpoint('one', 'n9');
    await createEndpoint('two', 'n9');
    world.api.faults.fail(403, { verb: 'delete', name: 'one' });
    await collector().sweep();
    expect(deleted).toEqual(['ciliumendpoints a/two']);
    expect(errors.map((error) => error.message)).toEqual([expect.stringContaining('403')]);
  });

  it('runs in the operator', async () => {
    await createEndpoint('lost', 'n9');
    await world.client.create(resources.NodePolicyStatus, report('n9', {}));
    await world.operator({ orphanGraceMs: 20 });
    await eventually(async () => {
      expect((await world.client.list(resources.CiliumEndpoint)).items).toEqual([]);
      expect((await world.client.list(resources.NodePolicyStatus)).items).toEqual([]);
    });
  });
});
