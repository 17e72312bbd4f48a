/** A pod that was deleted by force, whose sandbox runs on: its endpoint stays until kubelet's DEL, its rights do not. */
import { describe, expect, it } from '@jest/globals';
import { tableKey } from '../create-tables.ts';
import { DELETED_GRACE_MS, UNLISTED_GRACE_MS } from './identities.ts';
import { basic, rule, type World } from './testing/model-world.ts';

const ADDRESS = '10.0.0.1/32';

/** Endpoint 1 is of pod web (app a), which may be reached from app b only. */
async function running(): Promise<World> {
  const world = basic();
  world.identity(257, 'b');
  world.policy('p', 1, [rule('a', 'b', 7)]);
  await world.plan();
  expect(world.states.get(1)).toMatchObject({ state: 'ready', identity: 256 });
  expect(world.model.dueAt()).toBeUndefined();
  return world;
}

function remove({ db, tables }: World): void {
  db.write([tables.localPods], (txn) => txn.delete(tables.localPods, tableKey.pod('ns', 'web')));
}

describe('a pod that is deleted while its endpoint stays', () => {
  it('is unknown and closed after a grace time, until the API server has it again', async () => {
    const world = await running();
    remove(world);
    await world.plan();
    expect(world.states.get(1)).toMatchObject({ state: 'ready', identity: 256 });
    expect(world.model.dueAt()).toBe(DELETED_GRACE_MS);
    world.pass(DELETED_GRACE_MS - 1);
    await world.plan();
    expect(world.states.get(1)).toMatchObject({ state: 'ready', identity: 256 });
    const { revision } = world.states.get(1) ?? {};
    world.pass(1);
    await world.plan();
    expect(world.states.get(1)).toMatchObject({
      state: 'waiting-for-identity',
      identity: 0,
      enforced: { ingress: true, egress: true },
      policies: {},
      reason: expect.stringMatching(/^pod ns\/web .*u-web.* deleted/),
    });
    expect(world.states.get(1)?.revision).not.toBe(revision);
    expect(world.ipcache.get(ADDRESS)?.identity).toBe(0);
    expect(world.model.dueAt()).toBeUndefined();
    // What else changes does not open it.
    world.identity(300, 'a', 'next');
    await world.plan();
    expect(world.states.get(1)).toMatchObject({ identity: 0, reason: expect.stringContaining('deleted') });
    world.pod('web', 'a');
    await world.plan();
    expect(world.states.get(1)).toMatchObject({ state: 'ready', identity: 256 });
    expect(world.ipcache.get(ADDRESS)?.identity).toBe(256);
  });

  it('is not touched when it comes back within the grace time, which restarts', async () => {
    const world = await running();
    const { revision } = world.states.get(1) ?? {};
    for (let round = 0; round < 3; round += 1) {
      remove(world);
      await world.plan();
      world.pass(DELETED_GRACE_MS - 1);
      await world.plan();
      world.pod('web', 'a');
      await world.plan();
      expect(world.model.dueAt()).toBeUndefined();
    }
    expect(world.states.get(1)).toMatchObject({ state: 'ready', identity: 256, revision });
  });

  it('that comes back with labels of which the operator has said nothing yet stays what it was', async () => {
    const world = await running();
    remove(world);
    await world.plan();
    world.pod('web', 'a', [], 'next');
    await world.plan();
    expect(world.model.dueAt()).toBe(UNLISTED_GRACE_MS);
    world.pass(DELETED_GRACE_MS);
    await world.plan();
    expect(world.states.get(1)).toMatchObject({ state: 'ready', identity: 256 });
  });

  it('loses its rights also where a pod of its name has come', async () => {
    const world = await running();
    const { db, tables } = world;
    world.endpoint(2, { pod: { namespace: 'ns', name: 'web', uid: 'u-next' } });
    db.write([tables.localPods], (txn) => {
      const key = tableKey.pod('ns', 'web');
      const pod = txn.get(tables.localPods, key);
      if (pod !== undefined) txn.upsert(tables.localPods, { ...pod, uid: 'u-next' });
    });
    await world.plan();
    expect(world.states.get(2)).toMatchObject({ state: 'ready', identity: 256 });
    world.pass(DELETED_GRACE_MS);
    await world.plan();
    expect(world.states.get(1)).toMatchObject({ identity: 0 });
    expect(world.states.get(2)).toMatchObject({ state: 'ready', identity: 256 });
  });

  it('loses them also where the agent was restarted meanwhile', async () => {
    const world = basic();
    remove(world);
    const found = { id: 1, ifindex: 101, addresses: ['10.0.0.1'], identity: 256, slot: 0, revision: 3 };
    world.model.adopt({
      endpoints: [{ ...found, enforced: { ingress: false, egress: false } }],
      slots: new Map(),
      ipcache: [[ADDRESS, 256]],
    });
    await world.plan();
    expect(world.states.get(1)).toMatchObject({ state: 'ready', identity: 256 });
    world.pass(DELETED_GRACE_MS);
    await world.plan();
    expect(world.states.get(1)).toMatchObject({ identity: 0, reason: expect.stringContaining('deleted') });
  });

  it('of which this node has never known more than CNI told waits as it did', async () => {
    const world = basic();
    remove(world);
    await world.plan();
    expect(world.states.get(1)).toMatchObject({
      identity: 0,
      reason: expect.stringContaining('not known on this node yet'),
    });
    expect(world.model.dueAt()).toBeUndefined();
  });
});
