/** Shapes of one namespace that are more than one plan compiles. */
import { describe, expect, it } from '@jest/globals';
import { labelsKey } from '@weir/labels';
import type { ResolvedRule } from '@weir/policy';
import fc from 'fast-check';
import { runs } from '../../test/runs.ts';
import { classOf, FIRST_CLASS } from './classes.ts';
import { noneAround } from './testing/class-at.ts';
import { copy, podLabels, rule, World } from './testing/model-world.ts';

/** Each plan compiles one shape of a namespace, and no more. */
const worldOfTurns = (): World => new World({ work: 0 });

/** Endpoint `id`, of a pod with a version of its own, which policies can select. */
function pod(world: World, id: number, namespace = 'ns'): void {
  const [name, version] = [`pod-${id}`, `v${id}`];
  const labels = { ...podLabels('a', version), 'k8s:io.kubernetes.pod.namespace': namespace };
  const { namespaces, identities, localPods, peerSets } = world.tables;
  world.db.write([namespaces, identities, localPods, peerSets], (txn) => {
    txn.upsert(namespaces, { name: namespace, labels: {} });
    txn.upsert(identities, { id: 300 + id, labels, labelsKey: labelsKey(labels) });
    const own = { namespace, name, uid: `u-${name}`, labels: { app: 'a', version } };
    txn.upsert(localPods, { ...own, serviceAccount: '', namedPorts: [], addresses: [`10.0.0.${id}`] });
    const selector = { requirements: [{ key: 'k8s:version', operator: 'In' as const, values: [version] }] };
    txn.upsert(peerSets, { hash: `hash-${version}`, selector, identities: [], origin: 'cluster' });
  });
  world.endpoint(id, { pod: { namespace, name, uid: `u-${name}` } });
}

/** A policy for the one endpoint, of so many ports that everybody may use. */
function policy(world: World, id: number, generation: number, ports = 1, verdict: 'allow' | 'deny' = 'allow'): void {
  const rules = Array.from({ length: ports }, (_, at): ResolvedRule => {
    const from = generation + 2 * at;
    const subject = { subject: `hash-v${id}`, verdict, ports: [{ protocol: 'TCP' as const, from, to: from }] };
    return { ...rule('a', undefined, 1 + at), ...subject, peers: [{ entity: 'all' }] };
  });
  world.policy(`p${id}`, generation, rules);
}

async function settle(world: World): Promise<number> {
  for (let plans = 1; ; plans += 1) if (!(await world.plan()).again) return plans;
}

/** Generation of its policy that each endpoint has; 0: none. */
const generations = (world: World, ...ids: readonly number[]): (number | undefined)[] =>
  ids.map((id) => {
    const state = world.states.get(id);
    return state === undefined ? undefined : (state.policies[`p${id}`] ?? 0);
  });

describe('shapes that no plan has compiled', () => {
  it('are first those by which an administrator’s policies change, whatever the namespace’s own edits', async () => {
    const world = worldOfTurns();
    for (const id of [1, 2, 3, 4]) pod(world, id);
    for (const id of [1, 2, 3, 4]) policy(world, id, 1);
    await settle(world);
    for (const id of [1, 2, 3, 4]) policy(world, id, 2);
    await world.plan();
    const { tables, db } = world;
    const lock: ResolvedRule = {
      ...rule('a', undefined, 99),
      subject: 'hash-v4',
      verdict: 'deny',
      peers: [{ entity: 'all' }],
    };
    const kind = 'CiliumClusterwideNetworkPolicy';
    db.write([tables.policies], (txn) =>
      txn.upsert(tables.policies, { uid: 'lock', kind, name: 'lock', generation: 1, rules: [lock] }),
    );
    await world.plan();
    expect(world.states.get(4)?.policies).toEqual({ lock: 1, p4: 2 });
    expect(generations(world, 1, 2, 3).filter((generation) => generation === 1)).toHaveLength(2);
    await settle(world);
    expect(generations(world, 1, 2, 3)).toEqual([2, 2, 2]);
  });

  it('have one turn a namespace and plan; what was in force stays till then, and what had nothing is closed', async () => {
    const world = worldOfTurns();
    for (const id of [1, 2, 3]) pod(world, id);
    pod(world, 9, 'other');
    for (const id of [1, 2, 3, 9]) policy(world, id, 1);
    await settle(world);
    expect(generations(world, 1, 2, 3, 9)).toEqual([1, 1, 1, 1]);
    const slot = world.states.get(3)?.slot;

    pod(world, 4);
    for (const id of [1, 2, 3, 4, 9]) policy(world, id, 2);
    expect((await world.plan()).again).toBe(true);
    expect(generations(world, 1, 2, 3, 9)).toEqual([2, 1, 1, 2]);
    const reason = expect.stringContaining('more to compile');
    expect(world.states.get(3)).toMatchObject({ state: 'ready', slot, reason });
    const closed = { state: 'not-ready', enforced: { ingress: true, egress: true }, policies: {}, reason };
    expect(world.states.get(4)).toMatchObject(closed);
    expect([1, 2, 3, 4, 9].map((id) => world.model.waits(id))).toEqual([false, true, true, true, false]);
    expect([1, 2, 3, 4, 9].map((id) => world.model.failure(id))).toEqual(Array(5).fill(undefined));

    await world.plan();
    expect(generations(world, 1, 2, 3, 4)).toEqual([2, 2, 1, 0]);
    await settle(world);
    expect(generations(world, 1, 2, 3, 4)).toEqual([2, 2, 2, 2]);
    expect(world.states.get(4)).not.toHaveProperty('reason');
    const fresh = new World();
    copy(world, fresh);
    await settle(fresh);
    expect(world.conclusion()).toEqual(fresh.conclusion());
  });

  it('wait only when a plan has left them to the next: one that is to be written into another slot is compiled', async () => {
    const world = worldOfTurns();
    pod(world, 1);
    policy(world, 1, 1);
    await settle(world);
    world.model.slotOutgrown(world.states.get(1)?.slot ?? 0);
    expect([world.model.waits(1), world.model.lacks(1)]).toEqual([false, undefined]);
  });

  it('have their turns in the order in which they came to wait, whatever policies others of the namespace go on getting', async () => {
    const world = worldOfTurns();
    const ids = [1, 2, 3, 4, 5];
    for (const id of ids) pod(world, id);
    for (const id of ids) policy(world, id, 1);
    await settle(world);
    policy(world, 5, 2, 1, 'deny');
    for (let generation = 2; generation < 7; generation += 1) {
      for (const id of ids.slice(0, 4)) policy(world, id, generation);
      await world.plan();
    }
    expect(generations(world, 5)).toEqual([2]);
  });

  it('do not keep a pod open that is nobody any more', async () => {
    const world = worldOfTurns();
    for (const id of [1, 2, 3]) pod(world, id);
    await settle(world);
    for (const id of [1, 2]) policy(world, id, 1);
    const { localPods } = world.tables;
    world.db.write([localPods], (txn) => {
      const row = txn.get(localPods, 'ns/pod-3') as { uid: string } | undefined;
      if (row !== undefined) txn.upsert(localPods, { ...row, portExcess: '200 named ports' } as never);
    });
    await world.plan();
    expect(world.states.get(3)).toMatchObject({ state: 'waiting-for-identity', enforced: { ingress: true } });
  });

  it('wait, but slots in force do not: each knows a peer before its address comes', async () => {
    const world = worldOfTurns();
    const denied: ResolvedRule = { ...rule('a', 'b', 7), verdict: 'deny' };
    const open: ResolvedRule = { ...rule('a', undefined, 8), peers: [{ entity: 'all' }] };
    for (const id of [1, 2, 3]) pod(world, id);
    for (const id of [1, 2, 3]) {
      const own = { ports: [{ protocol: 'TCP' as const, from: id, to: 9 }] };
      world.policy(
        `p${id}`,
        1,
        [denied, { ...open, ...own }].map((each) => ({ ...each, subject: `hash-v${id}` })),
      );
    }
    world.peerSet('b', []);
    await settle(world);
    world.identity(400, 'b');
    world.remote('bad', '10.9.9.9', 400);
    await world.plan();
    expect(world.ipcache.get('10.9.9.9/32')?.identity).toBe(400);
    const slots = [1, 2, 3].map((id) => world.slots.get(world.states.get(id)?.slot ?? 0));
    expect(new Set(slots).size).toBe(3);
    for (const slot of slots)
      expect(slot && classOf(slot.classes.ingress, 400, noneAround)).toBeGreaterThanOrEqual(FIRST_CLASS);
  });

  it('close a pod that waits with another identity: nobody may be judged by the one as sender and by the other as receiver', async () => {
    const world = worldOfTurns();
    for (const id of [1, 2, 3]) pod(world, id);
    for (const id of [1, 2, 3]) policy(world, id, 1);
    await settle(world);
    // The rules of the next are not compiled yet when the pod gets its labels.
    for (const id of [1, 2]) policy(world, id, 2);
    policy(world, 4, 1);
    const { identities, localPods, peerSets } = world.tables;
    world.db.write([identities, localPods, peerSets], (txn) => {
      const labels = podLabels('a', 'v4');
      txn.upsert(identities, { id: 304, labels, labelsKey: labelsKey(labels) });
      const own = { namespace: 'ns', name: 'pod-3', uid: 'u-pod-3', labels: { app: 'a', version: 'v4' } };
      txn.upsert(localPods, { ...own, serviceAccount: '', namedPorts: [], addresses: ['10.0.0.3'] });
      const selector = { requirements: [{ key: 'k8s:version', operator: 'In' as const, values: ['v4'] }] };
      txn.upsert(peerSets, { hash: 'hash-v4', selector, identities: [], origin: 'cluster' });
    });
    await world.plan();
    expect([world.model.waits(3), world.ipcache.get('10.0.0.3/32')?.identity]).toEqual([true, 304]);
    const closed = { state: 'not-ready', enforced: { ingress: true, egress: true }, policies: {} };
    expect(world.states.get(3)).toMatchObject(closed);
    const slot = world.slots.get(world.states.get(3)?.slot ?? 0);
    expect(slot?.compiled.ingress.classes.flatMap(({ rows }) => rows)).toEqual([]);
    await settle(world);
    expect(world.states.get(3)).toMatchObject({ state: 'ready', policies: { p4: 1 } });
  });

  it('are compiled by the first plan, all of them', async () => {
    const world = worldOfTurns();
    world.model.adopt({ endpoints: [], slots: new Map(), ipcache: new Map() });
    for (const id of [1, 2, 3]) pod(world, id);
    for (const id of [1, 2, 3]) policy(world, id, 1);
    expect((await world.plan()).again).toBe(false);
    expect(generations(world, 1, 2, 3)).toEqual([1, 1, 1]);
  });

  it('come to what a fresh model concludes at once, whatever changes meanwhile', async () => {
    const step = fc.record({ id: fc.integer({ min: 1, max: 4 }), ports: fc.integer({ min: 0, max: 2 }) });
    await fc.assert(
      fc.asyncProperty(fc.array(fc.array(step, { maxLength: 4 }), { maxLength: 8 }), async (rounds) => {
        const grown = worldOfTurns();
        for (const id of [1, 2, 3, 4]) pod(grown, id);
        await settle(grown);
        for (const [at, steps] of rounds.entries()) {
          for (const { id, ports } of steps) policy(grown, id, 1 + at, ports);
          await grown.plan();
        }
        await settle(grown);
        const fresh = new World();
        copy(grown, fresh);
        await settle(fresh);
        expect(grown.conclusion()).toEqual(fresh.conclusion());
      }),
      { numRuns: runs(60) },
    );
  });
});
