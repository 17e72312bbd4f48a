/** What stays in force while the policies that are to follow it cannot be compiled. */
import { describe, expect, it } from '@jest/globals';
import type { ResolvedRule } from '@weir/policy';
import { createStateDB } from '@weir/statedb';
import { classOf, rowsByClass } from './classes.ts';
import { noneAround } from './testing/class-at.ts';
import { basic, rule, type World } from './testing/model-world.ts';

const HELD = 2;
/** No compiler takes it. */
const BAD: ResolvedRule = { ...rule('a', 'b', 9), ports: [{ protocol: 'TCP', from: 9, to: 5 }] };
const deny = (peer: string | { cidr: string }): ResolvedRule => ({ ...rule('a', peer, 7), verdict: 'deny' });
const open: ResolvedRule = { ...rule('a', undefined, 8), peers: [{ entity: 'all' }] };

/** What the slot that the kernel has for the endpoint makes of the identity. */
function verdict(world: World, identity: number, direction: 'ingress' | 'egress' = 'ingress'): string | undefined {
  const slot = world.slots.get(world.states.get(1)?.slot ?? 0);
  if (slot === undefined) return undefined;
  const [row] = rowsByClass(slot, direction).get(classOf(slot.classes[direction], identity, noneAround)) ?? [];
  return row?.verdict ?? 'none';
}

async function settle(world: World): Promise<void> {
  while ((await world.plan()).again);
}

/** Endpoint 1 is enforced by `rules` of policy p, and then policy q selects it, which cannot be compiled. */
async function held(rules: readonly ResolvedRule[]): Promise<World> {
  const world = basic();
  world.identity(257, 'b');
  world.remote('bad', '10.9.9.7', 257);
  world.policy('p', 1, rules);
  await settle(world);
  world.policy('q', 1, [BAD]);
  await settle(world);
  expect(world.model.failure(1)).toBeInstanceOf(Error);
  const reason = world.model.failure(1)?.message;
  expect(world.states.get(1)).toMatchObject({ state: 'ready', reason, policies: { p: 1 } });
  return world;
}

describe('while a policy cannot be compiled', () => {
  it('the slot in force learns the peers that come, and their flows are judged anew', async () => {
    const world = await held([open, deny('b')]);
    expect([verdict(world, 257), verdict(world, 400)]).toEqual(['deny', 'allow']);
    const before = world.states.get(1);
    world.identity(400, 'b', 'v2');
    world.remote('bad-2', '10.9.9.8', 400);
    await settle(world);
    expect([verdict(world, 257), verdict(world, 400)]).toEqual(['deny', 'deny']);
    expect(world.states.get(1)).toMatchObject({ slot: before?.slot, policies: { p: 1 } });
    expect(world.states.get(1)?.revision).toBeGreaterThan(before?.revision ?? 0);
  });

  it('the slot in force learns that the host begins to serve the API, and ceases, and the peers that come with that', async () => {
    const toServers = {
      ...rule('a', undefined, 6),
      direction: 'egress' as const,
      peers: [{ entity: 'kube-apiserver' as const }],
    };
    const world = await held([open, deny('b'), toServers]);
    for (const [serves, peer, expected] of [
      [true, 400, 'allow'],
      [false, 401, 'none'],
    ] as const) {
      world.identity(peer, 'b', `v${peer}`);
      world.remote(`bad-${peer}`, `10.9.9.${peer - 300}`, peer);
      const self = { name: 'self', addresses: ['192.0.2.1'], podCidrs: [], kubeApiserver: serves };
      world.db.write([world.tables.nodes], (txn) => txn.upsert(world.tables.nodes, self));
      await settle(world);
      expect(world.model.failure(1)).toBeInstanceOf(Error);
      expect([verdict(world, peer), verdict(world, 1, 'egress')]).toEqual(['deny', expected]);
    }
  });

  it('a peer that comes with the policy is judged by the slot in force, too', async () => {
    const world = basic();
    world.policy('p', 1, [open, deny('b')]);
    await settle(world);
    world.policy('q', 1, [BAD]);
    world.identity(400, 'b', 'v2');
    world.remote('bad', '10.9.9.8', 400);
    await world.plan();
    expect(verdict(world, 400)).toBe('deny');
  });

  it('the slot in force keeps the CIDRs and peer sets that no policy names any more', async () => {
    const world = await held([open, deny('b'), deny({ cidr: '198.51.100.0/24' })]);
    const cidr = (): number => world.ipcache.get('198.51.100.0/24')?.identity ?? 0;
    expect(verdict(world, cidr())).toBe('deny');
    world.db.write([world.tables.policies], (txn) => txn.delete(world.tables.policies, 'p'));
    await settle(world);
    world.policy('q', 2, [{ ...BAD, peers: [{ peerSet: 'hash-a' }] }]);
    await settle(world);
    world.db.write([world.tables.peerSets], (txn) => txn.delete(world.tables.peerSets, 'hash-b'));
    await settle(world);
    world.identity(400, 'b', 'v2');
    world.remote('bad-2', '10.9.9.8', 400);
    await settle(world);
    expect(world.model.failure(1)).toBeInstanceOf(Error);
    expect([cidr() === 0, verdict(world, cidr()), verdict(world, 400)]).toEqual([false, 'deny', 'deny']);
    world.db.write([world.tables.policies], (txn) => txn.delete(world.tables.policies, 'q'));
    await settle(world);
    expect(world.states.get(1)).toMatchObject({ slot: 0, policies: {} });
    expect([world.slots.size, world.ipcache.has('198.51.100.0/24')]).toEqual([0, false]);
    expect(world.model.policies.view('hash-b')).toBeUndefined();
  });

  it('the slot in force stays where other endpoints leave it, and follows', async () => {
    const world = await held([open, deny('b')]);
    world.pod('other', 'a', [], 'v2');
    world.endpoint(HELD, { pod: { namespace: 'ns', name: 'other', uid: 'u-other' } });
    world.identity(258, 'a', 'v2');
    await settle(world);
    expect(world.states.get(HELD)).toMatchObject({ state: 'not-ready', enforced: { ingress: true, egress: true } });
    world.identity(400, 'b', 'v2');
    await settle(world);
    expect(verdict(world, 400)).toBe('deny');
  });

  it('the slot in force goes when the policy does compile', async () => {
    const world = await held([open, deny('b')]);
    const old = world.states.get(1)?.slot ?? 0;
    world.policy('q', 2, [rule('a', 'b', 9)]);
    world.identity(400, 'b', 'v2');
    const gone: number[] = [];
    for (let again = true; again; ) {
      const plan = await world.plan();
      gone.push(...plan.slotsGone);
      again = plan.again;
    }
    expect(gone).toEqual([old]);
    expect(world.model.failure(1)).toBeUndefined();
    expect(world.states.get(1)).toMatchObject({ policies: { p: 1, q: 2 } });
    expect(verdict(world, 400)).toBe('deny');
  });

  it('the endpoint returns to the slot in force when the policy goes', async () => {
    const world = await held([open, deny('b')]);
    const before = world.states.get(1);
    world.db.write([world.tables.policies], (txn) => txn.delete(world.tables.policies, 'q'));
    world.identity(400, 'b', 'v2');
    await settle(world);
    expect(world.states.get(1)).toEqual({ ...before, reason: undefined });
    expect(verdict(world, 400)).toBe('deny');
    expect(world.slots.size).toBe(1);
  });

  it('it is compiled again when what it names has changed, and else once in a minute', async () => {
    const world = await held([open]);
    const compiles = async (): Promise<boolean> => {
      const before = world.model.failure(1);
      await settle(world);
      return world.model.failure(1) !== before;
    };
    expect([await compiles(), world.model.failing]).toEqual([false, false]);
    world.remote('elsewhere', '10.9.9.9', 500);
    expect(await compiles()).toBe(false);
    world.identity(400, 'b', 'v2');
    expect(await compiles()).toBe(true);
    expect(world.model.dueAt()).toBe(60_000);
    world.pass(60_000);
    expect([world.model.failing, await compiles(), world.model.failing]).toEqual([true, true, false]);
  });

  it('an endpoint keeps its slot, too, where the policy compiled before and does not any more', async () => {
    // Nothing but the compiler reads the rule.
    const world = basic({ db: createStateDB() });
    let broken = false;
    const fragile = {
      ...rule('a', 'b', 7),
      get ports() {
        if (broken) throw new Error('no ports');
        return [{ protocol: 'TCP' as const, from: 80, to: 80 }];
      },
    };
    world.identity(257, 'b');
    world.policy('p', 1, [fragile]);
    await settle(world);
    const before = world.states.get(1);
    broken = true;
    world.identity(400, 'b', 'v2');
    world.remote('more', '10.9.9.8', 400);
    await settle(world);
    expect(world.model.failure(1)?.message).toBe('no ports');
    expect(world.states.get(1)).toMatchObject({ state: 'ready', slot: before?.slot, policies: { p: 1 } });
    expect(verdict(world, 257)).toBe('allow');
  });

  it.each<readonly [string, (world: World) => void]>([
    ['interface', (world) => world.endpoint(1, { ifindex: 201, pod: { namespace: 'ns', name: 'web', uid: 'u-web' } })],
    [
      'pod of its name',
      (world) => {
        const { localPods } = world.tables;
        const pod = { namespace: 'ns', name: 'web', uid: 'u-next', labels: { app: 'a' }, addresses: [] };
        world.db.write([localPods], (txn) => txn.upsert(localPods, { ...pod, serviceAccount: '', namedPorts: [] }));
        world.endpoint(1, { pod: { namespace: 'ns', name: 'web', uid: 'u-next' } });
      },
    ],
  ])(
    'another %s has nothing of the slot in force, though its identity is the same: it is closed',
    async (_, replace) => {
      const closed = { state: 'not-ready', identity: 256, enforced: { ingress: true, egress: true }, policies: {} };
      const later = await held([open]);
      replace(later);
      await settle(later);
      const atOnce = basic();
      atOnce.policy('p', 1, [open]);
      await settle(atOnce);
      replace(atOnce);
      atOnce.policy('q', 1, [BAD]);
      await settle(atOnce);
      for (const world of [later, atOnce]) {
        expect(world.states.get(1)).toMatchObject(closed);
        expect([verdict(world, 257), world.slots.size]).toEqual(['none', 1]);
      }
    },
  );

  it('only an endpoint that was found in the kernel is left as it is', async () => {
    const closed = basic();
    closed.policy('q', 1, [BAD]);
    await settle(closed);
    expect([closed.states.get(1)?.state, closed.model.unconcluded]).toEqual(['not-ready', false]);

    const found = basic();
    const enforced = { ingress: true, egress: false };
    const endpoint = { id: 1, ifindex: 101, ipv4: '10.0.0.1', identity: 256, slot: 5, revision: 3, enforced };
    found.model.adopt({ endpoints: [endpoint], slots: new Map(), ipcache: [] });
    found.policy('q', 1, [BAD]);
    await settle(found);
    expect([found.states.has(1), found.model.unconcluded]).toEqual([false, true]);
    found.db.write([found.tables.policies], (txn) => txn.delete(found.tables.policies, 'q'));
    await settle(found);
    expect([found.states.get(1)?.slot, found.model.unconcluded]).toEqual([0, false]);
  });

  it('an endpoint that was found enforced keeps that as who it was, and is closed as another', async () => {
    const world = basic();
    world.peerSet('c', []);
    const word = { slot: 5, revision: 3, enforced: { ingress: true, egress: false } };
    const found = { id: 1, ifindex: 101, ipv4: '10.0.0.1', identity: 256, ...word };
    world.model.adopt({ endpoints: [found], slots: new Map(), ipcache: [['10.0.0.1/32', 256]] });
    world.policy('q', 1, [BAD, { ...BAD, subject: 'hash-c' }]);
    await settle(world);
    expect(world.states.get(1)).toBeUndefined();
    world.identity(300, 'c');
    world.pod('web', 'c');
    await settle(world);
    // Others judge it by the new number already.
    expect(world.ipcache.get('10.0.0.1/32')?.identity).toBe(300);
    expect(world.states.get(1)).toMatchObject({ state: 'not-ready', enforced: { ingress: true, egress: true } });
    expect(verdict(world, 257)).toBe('none');
  });

  it('it is compiled once a plan', async () => {
    const world = basic({ db: createStateDB() });
    let [tries, broken] = [0, false];
    const fragile: ResolvedRule = {
      ...rule('a', 'b', 7),
      get ports() {
        if (!broken) return [];
        tries += 1;
        throw new Error('no ports');
      },
    };
    world.policy('p', 1, [fragile]);
    await settle(world);
    broken = true;
    world.identity(400, 'b', 'v2');
    await world.plan();
    expect([tries, world.model.failure(1)?.message]).toEqual([1, 'no ports']);
  });

  it('CIDRs that stay named are not claimed anew', async () => {
    const world = basic();
    world.policy('p', 1, [{ ...open, peers: ['198.51.100.0/24', '203.0.113.0/24'].map((cidr) => ({ cidr })) }]);
    await settle(world);
    const claims = () => world.db.tables().find(({ name }) => name === 'addressClaims')?.revision;
    const before = claims();
    world.policy('q', 1, [BAD]);
    await settle(world);
    world.policy('q', 2, []);
    await settle(world);
    expect(claims()).toBe(before);
    // What only rules that stay in force name keeps its number until they go.
    world.policy('q', 3, [BAD]);
    world.policy('p', 2, [open]);
    await settle(world);
    expect(world.ipcache.has('203.0.113.0/24')).toBe(true);
    world.policy('q', 4, []);
    await settle(world);
    expect(world.ipcache.has('203.0.113.0/24')).toBe(false);
  });
});
