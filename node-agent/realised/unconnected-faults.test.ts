/** Pods of the node that Weir did not connect: which policies say so, and when. */
import { describe, expect, it } from '@jest/globals';
import { tableKey } from '../create-tables.ts';
import { rule } from '../derive/testing/model-world.ts';
import { addressed, node } from './testing/reported-node.ts';

const NOT_CONNECTED = {
  uid: 'p',
  generation: 3,
  reason: 'PodNotConnected',
  message: expect.stringMatching(/^pod ns\/a: connected by another network plugin/),
};

describe('a pod that another plugin connected', () => {
  it('fails the policies that select it, once it has been so for 10 s, and until it is gone', async () => {
    const { world, failures } = node();
    expect(await failures(0)).toEqual([]);
    expect(await failures(9_999)).toEqual([]);
    expect(await failures(10_000)).toEqual([NOT_CONNECTED]);
    world.policy('p', 4, [rule('a', undefined, 7)]);
    expect(await failures(10_001)).toEqual([{ ...NOT_CONNECTED, generation: 4 }]);
    world.policy('p', 5, [rule('b', undefined, 7)]);
    expect(await failures(10_002)).toMatchObject([{ generation: 5, message: expect.stringMatching(/^pod ns\/b:/) }]);
    const { db, tables } = world;
    db.write([tables.localPods], (txn) => txn.delete(tables.localPods, tableKey.pod('ns', 'b')));
    expect(await failures(10_003)).toEqual([]);
  });

  it('is none that has an endpoint, an ended one, or one of which the cluster says nothing yet', async () => {
    const { world, failures } = node();
    await failures(0);
    world.endpoint(1, { pod: { namespace: 'ns', name: 'a', uid: 'u-a' } });
    expect(await failures(20_000)).toEqual([]);
    // The endpoint of a pod of this name that was there before.
    world.endpoint(1, { pod: { namespace: 'ns', name: 'a', uid: 'u-before' }, addresses: ['10.0.0.7'] });
    await failures(30_000);
    expect(await failures(40_000)).toEqual([NOT_CONNECTED]);
    // Found in the kernel: nobody has said yet whose it is.
    world.endpoint(1, { addresses: ['10.0.0.1'] });
    expect(await failures(50_000)).toEqual([]);
    world.dropEndpoint(1);
    await failures(60_000);
    expect(await failures(70_000)).toEqual([NOT_CONNECTED]);
    addressed(world, 'a');
    expect(await failures(80_000)).toEqual([]);
    addressed(world, 'a', '10.0.0.1');
    world.remote('a', '10.0.0.1', 256, [], 'u-before');
    await failures(90_000);
    expect(await failures(100_000)).toEqual([]);
  });
});

describe('a pod whose interface is gone', () => {
  it('fails the policies that select it after 10 s, and says so beside what another plugin connected', async () => {
    const { world, failures } = node();
    const pod = { namespace: 'ns', name: 'a', uid: 'u-a' };
    world.endpoint(1, { pod });
    expect(await failures(0)).toEqual([]);
    world.endpoint(1, { pod, interfaceName: 'weir1', gone: '2026-01-01T00:00:00Z' });
    expect(await failures(20_000)).toEqual([]);
    const gone =
      'pod ns/a: its interface weir1 is gone from the node, so that it has no network; delete the pod, so that it is recreated';
    expect(await failures(30_000)).toEqual([{ uid: 'p', generation: 3, reason: 'PodNotConnected', message: gone }]);
    // Another pod of that policy.
    world.pod('c', 'a', [], undefined, ['10.0.0.3']);
    world.remote('c', '10.0.0.3', 256, [], 'u-c');
    await failures(40_000);
    const [both] = (await failures(50_000)) as readonly { readonly message: string }[];
    expect(both?.message).toMatch(`; ${gone}`);
    expect(both?.message).toMatch(/^pod ns\/c: connected by another network plugin/);
    world.endpoint(3, { pod: { namespace: 'ns', name: 'c', uid: 'u-c' } });
    // Its sandbox was recreated, and nobody has told of the end of the former one.
    world.endpoint(2, { pod, addresses: ['10.0.0.9'] });
    expect(await failures(60_000)).toEqual([]);
  });
});
