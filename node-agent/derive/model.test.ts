import { describe, expect, it } from '@jest/globals';
import type { ResolvedRule } from '@weir/policy';
import fc from 'fast-check';
import { runs } from '../../test/runs.ts';
import { tableKey } from '../create-tables.ts';
import { classAt } from './testing/class-at.ts';
import { change, furnish, take } from './testing/model-changes.ts';
import { basic, copy, freshLike, rule, settle, World } from './testing/model-world.ts';

describe('model', () => {
  it('denies both directions of a pod without identity, and opens it when no policy selects it', async () => {
    const world = new World();
    world.namespace();
    world.endpoint(1, { pod: { namespace: 'ns', name: 'web' } });
    await world.plan();
    const waiting = world.states.get(1);
    expect(waiting).toMatchObject({
      state: 'waiting-for-identity',
      enforced: { ingress: true, egress: true },
      identity: 0,
    });
    expect(world.slots.get(waiting?.slot ?? 0)?.compiled.ingress.scope.pod).toEqual([]);
    expect(world.ipcache.get('10.0.0.1/32')?.identity).toBe(0);
    world.pod('web', 'a');
    world.identity(256, 'a');
    await world.plan();
    expect(world.states.get(1)).toMatchObject({ state: 'ready', slot: 0, identity: 256 });
    expect(world.ipcache.get('10.0.0.1/32')?.identity).toBe(256);
  });

  it('keeps the listeners that its slots name, and gives others back', async () => {
    const asks = (names: readonly string[]): ResolvedRule => ({
      ...rule('a', 'b', 7),
      direction: 'egress',
      verdict: 'redirect',
      ports: [{ protocol: 'UDP', from: 53, to: 53 }],
      dns: names,
    });
    const world = basic();
    world.policy('p', 1, [asks(['a.io'])]);
    await settle(world);
    world.policy('p', 2, [asks(['b.io'])]);
    await settle(world);
    const listeners = (of: World): string[] => Array.from(of.numbers.eachListener(), ([, names]) => names.join());
    expect(listeners(world)).toEqual(['a.io', 'b.io']);
    const fresh = await freshLike(world);
    expect(listeners(fresh)).toEqual(['a.io', 'b.io']);
    await fresh.plan();
    expect(listeners(fresh)).toEqual(['b.io']);
    expect([...fresh.numbers.eachListener()][0]?.[0]).toBe([...world.numbers.eachListener()][1]?.[0]);
  });

  it('takes away the address of a pod of this node when the pod goes, whatever the slices go on saying', async () => {
    const world = basic();
    const { db, tables } = world;
    db.write([tables.nodes], (txn) =>
      txn.upsert(tables.nodes, {
        name: 'self',
        addresses: ['192.0.2.1'],
        podCidrs: ['10.9.9.0/24'],
        kubeApiserver: false,
      }),
    );
    world.identity(257, 'b');
    world.peerSet('b', [257]);
    const identity = (address: string): number | undefined => world.ipcache.get(`${address}/32`)?.identity;
    // By Weir: known by its endpoint, and not by its object, which outlives that.
    world.pod('here', 'b', [], undefined, ['10.9.9.7']);
    world.remote('here', '10.9.9.7', 257, [], 'u-here');
    world.endpoint(7, { addresses: ['10.9.9.7'], pod: { namespace: 'ns', name: 'here', uid: 'u-here' } });
    // By another plugin: its object is all that is known.
    world.pod('bridged', 'b', [], undefined, ['10.9.9.8']);
    world.remote('bridged', '10.9.9.8', 257, [], 'u-bridged');
    // A former pod of that name; nobody; and a pod of another node.
    world.remote('stale', '10.9.9.9', 257, [], 'u-former');
    world.pod('stale', 'b', [], undefined, ['10.9.9.9']);
    world.remote('nobody', '10.9.9.10', 257, [], 'u-nobody');
    world.remote('elsewhere', '10.8.8.8', 257, [], 'u-elsewhere');
    await world.plan();
    expect(['10.9.9.7', '10.9.9.8', '10.9.9.9', '10.9.9.10', '10.8.8.8'].map(identity)).toEqual([257, 257, 0, 0, 257]);
    db.write([tables.endpoints], (txn) => txn.delete(tables.endpoints, tableKey.endpoint(7)));
    await world.plan();
    expect(identity('10.9.9.7')).toBe(0);
    db.write([tables.localPods], (txn) => txn.delete(tables.localPods, 'ns/bridged'));
    await world.plan();
    expect(identity('10.9.9.8')).toBe(0);
    // The same pod in a new sandbox.
    world.endpoint(8, { addresses: ['10.9.9.7'], pod: { namespace: 'ns', name: 'here', uid: 'u-here' } });
    await world.plan();
    expect(identity('10.9.9.7')).toBe(257);
    expect(identity('10.8.8.8')).toBe(257);
  });

  it('gives an address that two pods of different identities have to neither', async () => {
    const world = basic();
    world.identity(400, 'c');
    world.remote('a-former', '10.9.9.9', 257, [], 'u-1');
    world.remote('b-new', '10.9.9.9', 400, [], 'u-2');
    await world.plan();
    expect(world.ipcache.get('10.9.9.9/32')?.identity).toBe(0);
    world.remote('a-former', '10.9.9.8', 257, [], 'u-1');
    await world.plan();
    expect(world.ipcache.get('10.9.9.9/32')?.identity).toBe(400);
    world.remote('c-same', '10.9.9.9', 400, [], 'u-3');
    await world.plan();
    expect(world.ipcache.get('10.9.9.9/32')?.identity).toBe(400);
  });

  it('keeps the generation before in force until all PeerSets of the new one are here', async () => {
    const world = basic();
    world.policy('p', 1, [rule('a', 'b', 7)]);
    await world.plan();
    expect(world.states.get(1)?.policies).toEqual({ p: 1 });
    const slot = world.states.get(1)?.slot;
    world.policy('p', 2, [rule('a', 'c', 8)]);
    await world.plan();
    expect(world.states.get(1)).toMatchObject({ policies: { p: 1 }, slot });
    expect([...world.model.missing()]).toMatchObject([{ uid: 'p', generation: 2, hashes: ['hash-c'] }]);
    // The cluster may drop what only the old generation names: it stays as it was for as long as that is in force.
    world.db.write([world.tables.peerSets], (txn) => txn.delete(world.tables.peerSets, 'hash-b'));
    await world.plan();
    expect(world.states.get(1)).toMatchObject({ policies: { p: 1 }, slot });
    world.peerSet('c', []);
    await world.plan();
    expect(world.states.get(1)?.policies).toEqual({ p: 2 });
    expect([...world.model.missing()]).toEqual([]);
  });

  it('follows an operator that gives the sets of one generation other names, and decides as before all the time', async () => {
    const world = basic();
    world.identity(257, 'b');
    world.remote('r', '10.9.9.9', 257);
    const { db, tables } = world;
    const renamed = (name: string): string => name.replace('hash-', 'whole-hash-');
    const written = rule('a', 'b', 7);
    world.policy('p', 1, [written]);
    await world.plan();
    const decided = () => {
      const { slot = 0, policies, enforced } = world.states.get(1) ?? {};
      return { policies, enforced, compiled: world.slots.get(slot)?.compiled };
    };
    const before = decided();
    expect(before).toMatchObject({ policies: { p: 1 }, enforced: { ingress: true } });
    // In whichever order they arrive: the policy before its sets; the old sets gone before the new policy was looked at.
    world.policy('p', 1, [{ ...written, subject: renamed(written.subject), peers: [{ peerSet: renamed('hash-b') }] }]);
    await world.plan();
    expect(decided()).toEqual(before);
    using snapshot = db.read();
    const sets = [...snapshot.all(tables.peerSets)];
    for (const set of sets) {
      db.write([tables.peerSets], (txn) => txn.upsert(tables.peerSets, { ...set, hash: renamed(set.hash) }));
      await world.plan();
      expect(decided()).toEqual(before);
    }
    db.write([tables.peerSets], (txn) => {
      for (const { hash } of sets) txn.delete(tables.peerSets, hash);
    });
    await world.plan();
    expect(decided()).toEqual(before);
    expect([...world.model.missing()]).toEqual([]);
    // By the new names: who joins now is told by them.
    world.identity(400, 'b');
    world.remote('s', '10.9.9.10', 400);
    await world.plan();
    const { classes } = world.slots.get(world.states.get(1)?.slot ?? 0) ?? {};
    expect(classes?.ingress.get(400)).toBe(classes?.ingress.get(257));
    expect(classes?.ingress.get(400)).toBeDefined();
  });

  it('edits a slot in place on a membership change, and moves the endpoint on a rule change', async () => {
    const world = basic();
    world.policy('p', 1, [rule('a', 'b', 7)]);
    await world.plan();
    const before = world.states.get(1);
    const number = world.slots.get(before?.slot ?? 0)?.classes.ingress.get(257);
    expect(number).toBeGreaterThanOrEqual(16);
    world.identity(400, 'b');
    world.remote('r', '10.9.9.9', 400);
    await world.plan();
    const edited = world.states.get(1);
    expect(edited?.slot).toBe(before?.slot);
    expect(world.slots.get(edited?.slot ?? 0)?.classes.ingress.get(400)).toBe(number);
    expect(edited?.revision).toBe((before?.revision ?? 0) + 1);
    world.policy('p', 2, [rule('a', 'c', 7)]);
    world.peerSet('c', []);
    const plan = await world.plan();
    expect(world.states.get(1)?.slot).not.toBe(before?.slot);
    expect(plan.slotsGone).toEqual([before?.slot]);
  });

  it('does not judge flows again when an address comes that the policy treats like the unknown before it', async () => {
    const world = basic();
    world.policy('p', 1, [rule('a', undefined, 7)]);
    world.identity(500, 'c');
    await world.plan();
    const before = world.states.get(1);
    world.db.write([world.tables.nodes], (txn) =>
      txn.upsert(world.tables.nodes, {
        name: 'self',
        addresses: ['192.0.2.1'],
        podCidrs: ['10.9.0.0/16'],
        kubeApiserver: false,
      }),
    );
    await world.plan();
    const host = world.states.get(1)?.revision ?? 0;
    expect(host).toBe((before?.revision ?? 0) + 1);
    world.policy('other', 1, [{ ...rule('c', undefined, 9) }]);
    world.peerSet('c', [500]);
    await world.plan();
    expect(world.states.get(1)?.revision).toBe(host);
  });

  it('leaves a slot as it is until nobody points at it: it judges what comes with its successor as before', async () => {
    const world = basic();
    world.policy('p', 1, [rule('a', { cidr: '10.0.0.0/8' }, 7)]);
    await world.plan();
    const old = world.states.get(1)?.slot ?? 0;
    const had = new Map(world.ipcache);
    const ingress = world.slots.get(old)?.classes.ingress ?? new Map<number, number>();
    world.policy('p', 2, [rule('a', { cidr: '10.9.0.0/16' }, 7)]);
    const plan = await world.plan();
    expect(plan.slots.map(({ slot }) => slot)).not.toContain(old);
    expect(plan.slotsGone).toEqual([old]);
    expect(plan.ipcacheGone).toEqual(['10.0.0.0/8']);
    // What goes does so last.
    const meanwhile = new Map([...had, ...world.ipcache]);
    expect(classAt(meanwhile, ingress, '10.9.0.0/16')).toBe(classAt(had, ingress, '10.0.0.0/8'));
    expect(classAt(had, ingress, '10.0.0.0/8')).toBeGreaterThanOrEqual(16);
    expect(plan.again).toBe(true);
    expect((await world.plan()).again).toBe(false);
  });

  it('closes an endpoint whose policy cannot be compiled any more, and mends it with the next generation', async () => {
    const world = basic();
    world.policy('p', 1, [rule('a', 'b', 7)]);
    await world.plan();
    const before = world.states.get(1);
    world.policy('p', 2, [{ ...rule('a', 'b', 7), ports: [{ protocol: 'TCP', from: 9, to: 5 }] }]);
    await world.plan();
    expect(world.states.get(1)).toMatchObject({
      ...{ state: 'not-ready', enforced: { ingress: true, egress: true }, policies: {} },
      reason: world.model.failure(1)?.message,
    });
    expect(world.states.get(1)?.revision).toBeGreaterThan(before?.revision ?? 0);
    expect(world.model.failure(1)).toBeInstanceOf(Error);
    expect(world.model.policiesOf(1)).toMatchObject({ p: 2 });
    world.policy('p', 3, [rule('a', 'b', 8)]);
    await world.plan();
    expect(world.model.failure(1)).toBeUndefined();
    expect(world.states.get(1)?.policies).toEqual({ p: 3 });
  });

  it('closes a new endpoint whose policy cannot be compiled, until it can', async () => {
    const world = basic();
    world.policy('p', 1, [{ ...rule('a', 'b', 7), ports: [{ protocol: 'TCP', from: 9, to: 5 }] }]);
    expect((await world.plan()).again).toBe(false);
    expect(world.states.get(1)).toMatchObject({
      state: 'not-ready',
      enforced: { ingress: true, egress: true },
      policies: {},
    });
    world.policy('p', 2, [rule('a', 'b', 8)]);
    while ((await world.plan()).again);
    expect(world.states.get(1)).toMatchObject({
      state: 'ready',
      policies: { p: 2 },
      enforced: { ingress: true, egress: false },
    });
  });

  it('does not count an address of a pod range as outside, even where a rule names it as CIDR', async () => {
    const world = basic();
    world.policy('p', 1, [rule('a', { cidr: '10.9.9.0/24' }, 7), rule('a', { cidr: '198.51.100.0/24' }, 8)]);
    await world.plan();
    expect(world.ipcache.get('10.9.9.0/24')?.identity).toBeGreaterThan(0x01000000);
    world.db.write([world.tables.nodes], (txn) =>
      txn.upsert(world.tables.nodes, {
        name: 'n2',
        addresses: ['192.0.2.2'],
        podCidrs: ['10.9.0.0/16'],
        kubeApiserver: true,
      }),
    );
    world.db.write([world.tables.apiserverAddresses], (txn) =>
      txn.upsert(world.tables.apiserverAddresses, { address: '192.0.2.2' }),
    );
    await world.plan();
    expect(world.ipcache.get('10.9.9.0/24')?.identity).toBe(0);
    expect(world.ipcache.get('10.9.0.0/16')?.identity).toBe(0);
    expect(world.ipcache.get('198.51.100.0/24')?.identity).toBeGreaterThan(0x01000000);
    expect(world.ipcache.get('192.0.2.2/32')?.identity).toBe(7);
    expect(world.ipcache.get('0.0.0.0/0')?.identity).toBe(2);
  });

  it('computes step by step what a fresh model computes at once', async () => {
    let compared = 0;
    let breaths = 0;
    await fc.assert(
      fc.asyncProperty(fc.array(change, { minLength: 1, maxLength: 25 }), fc.boolean(), async (steps, furnished) => {
        const world = new World();
        if (furnished) furnish(world);
        for (const each of steps) {
          take(world, each);
          while ((await world.plan()).again);
          // What stays in force from before is history by design, not a result from the tables.
          const held = [...world.states.keys()].some((id) => {
            const info = world.model.info(id);
            return info?.ready === true && info.reason !== undefined;
          });
          if (held || [...world.model.missing()].length > 0) continue;
          const fresh = new World({ eager: true });
          fresh.numbers.adopt(world.numbers.state());
          copy(world, fresh);
          while ((await fresh.plan()).again);
          compared += 1;
          breaths += fresh.breaths;
          expect(world.result()).toEqual(fresh.result());
        }
      }),
      { numRuns: runs(120) },
    );
    expect(compared).toBeGreaterThan(runs(100));
    expect(breaths).toBeGreaterThan(compared);
  });
});

describe('pull', () => {
  it('takes in no more changes than the limit, of all tables together, and says when nothing is left', () => {
    const world = new World();
    world.namespace();
    for (const name of ['p', 'q', 'r']) world.pod(name, 'a');
    expect(world.model.pull(3)).toBe(true);
    expect(world.model.pull(3)).toBe(false);
    expect(world.model.pull(3)).toBe(false);
  });
});
