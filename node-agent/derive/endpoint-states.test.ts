/** What of an endpoint's state changes when something changes elsewhere, and what does not. */
import { describe, expect, it } from '@jest/globals';
import type { PolicyRow } from '../tables.ts';
import { basic, rule, type World, web } from './testing/model-world.ts';

/** Endpoint 1 lets app b in; the pods r (of app b) and s (of none that a rule names) are on other nodes. */
async function guarded(): Promise<World> {
  const world = basic();
  world.identity(257, 'b');
  world.identity(300, 'other');
  world.identity(301, 'another');
  world.policy('p', 1, [rule('a', 'b', 7)]);
  world.remote('r', '10.9.9.1', 257);
  world.remote('s', '10.9.9.2', 300);
  while ((await world.plan()).again);
  return world;
}

describe('an endpoint gets a new revision', () => {
  it('not when a pod that no rule names comes, is relabelled or goes', async () => {
    const world = await guarded();
    const before = world.states.get(1);
    world.remote('t', '10.9.9.3', 300);
    expect(await world.plan()).toMatchObject({ ipcache: [{ identity: 300 }], endpoints: [], afterGone: [] });
    world.remote('t', '10.9.9.3', 301);
    expect(await world.plan()).toMatchObject({ ipcache: [{ identity: 301 }], endpoints: [], afterGone: [] });
    world.db.write([world.tables.remoteEndpoints], (txn) => txn.delete(world.tables.remoteEndpoints, 'ns/t'));
    expect(await world.plan()).toMatchObject({ ipcacheGone: ['10.9.9.3/32'], endpoints: [], afterGone: [] });
    expect(world.states.get(1)).toBe(before);
  });

  it('when a pod that was let in is so no more, and when one begins to be', async () => {
    const world = await guarded();
    const revision = (): number => world.states.get(1)?.revision ?? 0;
    const before = revision();
    world.remote('r', '10.9.9.1', 300);
    await world.plan();
    expect(revision()).toBe(before + 1);
    world.remote('s', '10.9.9.2', 257);
    await world.plan();
    expect(revision()).toBe(before + 2);
    world.db.write([world.tables.remoteEndpoints], (txn) => txn.delete(world.tables.remoteEndpoints, 'ns/s'));
    expect(await world.plan()).toMatchObject({ ipcacheGone: ['10.9.9.2/32'], afterGone: [1] });
    expect(revision()).toBe(before + 3);
  });

  it('not when a pod goes from one rule to another that lets in the same', async () => {
    const world = await guarded();
    world.identity(302, 'c');
    world.peerSet('c', [302]);
    world.policy('q', 1, [rule('a', 'c', 8)]);
    while ((await world.plan()).again);
    const before = world.states.get(1);
    const { classes } = world.slots.get(before?.slot ?? 0) ?? {};
    expect(classes?.ingress.get(302)).not.toBe(classes?.ingress.get(257));
    world.remote('r', '10.9.9.1', 302);
    expect(await world.plan()).toMatchObject({ ipcache: [{ identity: 302 }], endpoints: [] });
    expect(world.states.get(1)).toBe(before);
  });
});

describe('the state of an endpoint stays', () => {
  it('when an identity comes that is not its own, and with it what is computed of the endpoint', async () => {
    const world = await guarded();
    const [state, info] = [world.model.state(1), world.model.info(1)];
    world.identity(400, 'nobody');
    expect(await world.plan()).toMatchObject({ endpoints: [] });
    expect(world.model.state(1)).toBe(state);
    expect(world.model.info(1)).toBe(info);
  });

  it('when its pod gets an address, but not when it gets a port name or labels', async () => {
    const world = await guarded();
    world.pod('web', 'a', [], undefined, ['10.0.0.1']);
    expect(await world.plan()).toMatchObject({ endpoints: [] });
    world.pod('web', 'a', [web(80)]);
    await world.plan();
    expect(world.model.info(1)?.namedPorts).toEqual([web(80)]);
    world.identity(401, 'a', 'next');
    world.pod('web', 'a', [web(80)], 'next');
    expect(await world.plan()).toMatchObject({ endpoints: [{ identity: 401, labels: { 'k8s:version': 'next' } }] });
  });
});

describe('rules are read again', () => {
  /** Endpoints 1 and 2 of app a, and 3 of app b; policy p selects app a and q app b. How often each policy was read since asked last. */
  async function counted(): Promise<{ world: World; reads: () => Record<string, number> }> {
    const world = await guarded();
    const { db, tables } = world;
    const counts: Record<string, number> = {};
    const put = (uid: string, rules: PolicyRow['rules'], generation: number): void => {
      const row = {
        ...{ uid, kind: 'CiliumNetworkPolicy' as const, namespace: 'ns', name: uid },
        get rules() {
          counts[uid] = (counts[uid] ?? 0) + 1;
          return rules;
        },
        get generation() {
          counts[uid] = (counts[uid] ?? 0) + 1;
          return generation;
        },
      };
      db.write([tables.policies], (txn) => txn.upsert(tables.policies, row));
    };
    put('p', [rule('a', 'b', 7)], 2);
    put('q', [rule('b', 'a', 8)], 1);
    world.pod('web2', 'a');
    world.endpoint(2, { pod: { namespace: 'ns', name: 'web2', uid: 'u-web2' } });
    world.pod('back', 'b');
    world.endpoint(3, { pod: { namespace: 'ns', name: 'back', uid: 'u-back' } });
    while ((await world.plan()).again);
    expect([1, 2, 3].map((id) => world.states.get(id)?.policies)).toEqual([{ p: 2 }, { p: 2 }, { q: 1 }]);
    const reads = () => {
      const read = { ...counts };
      for (const uid of Object.keys(counts)) delete counts[uid];
      return read;
    };
    reads();
    return { world, reads };
  }

  it('for no endpoint when pods and identities change, or a policy that selects none', async () => {
    const { world, reads } = await counted();
    world.identity(400, 'nobody');
    world.remote('s', '10.9.9.2', 301);
    world.remote('r', '10.9.9.1', 300);
    world.peerSet('c', []);
    world.policy('nobody', 1, [rule('c', 'b', 9)]);
    while ((await world.plan()).again);
    expect(reads()).toEqual({});
  });

  it('only for endpoints that a changed policy selects', async () => {
    const { world, reads } = await counted();
    const shared = world.model.state(1)?.policies;
    expect(world.model.state(2)?.policies).toBe(shared);
    world.policy('more', 1, [rule('a', 'a', 9)]);
    while ((await world.plan()).again);
    expect(Object.keys(reads())).toEqual(['p']);
    expect(world.model.state(1)?.policies).toEqual({ more: 1, p: 2 });
    expect(world.model.state(2)?.policies).toBe(world.model.state(1)?.policies);
    world.pod('back', 'b', [web(80)]);
    while ((await world.plan()).again);
    expect(reads()).toEqual({});
    // One that comes has its fellows' policies, which are one object.
    world.pod('web4', 'a');
    world.endpoint(4, { pod: { namespace: 'ns', name: 'web4', uid: 'u-web4' } });
    while ((await world.plan()).again);
    expect(reads()).toEqual({});
    expect(world.model.state(4)?.policies).toBe(world.model.state(1)?.policies);
  });
});
