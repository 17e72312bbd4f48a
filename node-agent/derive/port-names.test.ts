import { describe, expect, it } from '@jest/globals';
import type { SlotRow } from '../tables.ts';
import { basic, byName, rule, type World, web } from './testing/model-world.ts';

describe('ports by name', () => {
  /** Rows that decide about the identity when endpoint 1 sends to it, or is sent to by it. */
  function rowsFor(world: World, direction: 'ingress' | 'egress', identity: number): unknown {
    const slot = world.slots.get(world.states.get(1)?.slot ?? 0);
    const compiled = slot?.compiled[direction];
    const own = compiled?.classes.find(({ members }) => members.includes(identity))?.rows;
    return (own ?? compiled?.scope.pod ?? []).map(({ protocol, from, to, verdict }) => [protocol, from, to, verdict]);
  }

  it('gives each endpoint its own number on ingress, and nothing to one that has not the name', async () => {
    const world = basic();
    world.policy('p', 1, [byName('allow', 'ingress')]);
    for (const [id, ports] of [
      [1, [web(8080)]],
      [2, [web(9090)]],
      [3, []],
      [4, [web(8080), { name: 'other', port: 1, protocol: 'TCP' }]],
    ] as const) {
      world.pod(`w${id}`, 'a', ports);
      world.endpoint(id, { pod: { namespace: 'ns', name: `w${id}` } });
    }
    await world.plan();
    const slotOf = (id: number): SlotRow | undefined => world.slots.get(world.states.get(id)?.slot ?? 0);
    const scope = (id: number): unknown => slotOf(id)?.compiled.ingress.scope.pod.map(({ from, to }) => [from, to]);
    expect([1, 2, 3, 4].map(scope)).toEqual([[[8080, 8080]], [[9090, 9090]], [], [[8080, 8080]]]);
    expect(slotOf(1)?.slot).toBe(slotOf(4)?.slot);
    expect(slotOf(3)?.compiled.ingress.enforced).toBe(true);
    const before = world.states.get(2)?.revision ?? 0;
    world.pod('w1', 'a', [web(9090)]);
    await world.plan();
    expect(slotOf(1)?.slot).toBe(slotOf(2)?.slot);
    expect(world.states.get(2)?.revision).toBe(before);
  });

  it('denies both directions while the pod, and with it its names, is not known', async () => {
    const world = basic();
    world.policy('p', 1, [byName('deny', 'ingress')]);
    world.endpoint(2, { pod: { namespace: 'ns', name: 'late' } });
    await world.plan();
    const slot = world.slots.get(world.states.get(2)?.slot ?? 0);
    expect(world.states.get(2)?.enforced).toEqual({ ingress: true, egress: true });
    expect([slot?.compiled.ingress.scope, slot?.compiled.egress.scope]).toEqual([
      { unknown: [], pod: [], world: [] },
      { unknown: [], pod: [], world: [] },
    ]);
    world.pod('late', 'a', [web(8080)]);
    await world.plan();
    const denied = world.slots.get(world.states.get(2)?.slot ?? 0)?.compiled.ingress.scope.pod;
    expect(denied).toContainEqual({ protocol: 6, from: 8080, to: 8080, verdict: 'deny', cookie: 7 });
  });

  it('allows the number of a peer while it is the only one, and judges open flows again when it is none any more', async () => {
    const world = basic();
    world.identity(257, 'b');
    world.policy('p', 1, [byName('allow', 'egress', 'b')]);
    world.remote('r', '10.9.9.1', 257, [web(80)]);
    await world.plan();
    const slot = world.states.get(1)?.slot;
    expect(rowsFor(world, 'egress', 257)).toEqual([[6, 80, 80, 'allow']]);
    const one = world.states.get(1)?.revision ?? 0;
    world.remote('s', '10.9.9.2', 257, [web(81)]);
    await world.plan();
    expect(rowsFor(world, 'egress', 257)).toEqual([]);
    const two = world.states.get(1)?.revision ?? 0;
    expect(two).toBeGreaterThan(one);
    world.db.write([world.tables.remoteEndpoints], (txn) => txn.delete(world.tables.remoteEndpoints, 'ns/r'));
    // The address goes first: while it is there, 81 must not become its only number.
    expect((await world.plan()).again).toBe(true);
    expect(rowsFor(world, 'egress', 257)).toEqual([]);
    expect((await world.plan()).again).toBe(false);
    expect(rowsFor(world, 'egress', 257)).toEqual([[6, 81, 81, 'allow']]);
    expect(world.states.get(1)?.slot).toBe(slot);
  });

  it('of a NetworkPolicy gives each peer its own number, also where peers of equal labels give several', async () => {
    const world = basic();
    world.identity(257, 'b');
    const named = byName('allow', 'egress', 'b');
    const ports = (named.ports ?? []).map((port) => ('name' in port ? { ...port, each: true as const } : port));
    world.policy('p', 1, [{ ...named, ports }]);
    const addresses = (): unknown =>
      world.slots
        .get(world.states.get(1)?.slot ?? 0)
        ?.compiled.egress.addresses.map(({ prefix, identity, rows }) => [
          prefix,
          identity,
          rows.map(({ from }) => from),
        ]);
    world.remote('r', '10.9.9.1', 257, [web(80)]);
    await world.plan();
    expect([addresses(), rowsFor(world, 'egress', 257)]).toEqual([[], [[6, 80, 80, 'allow']]]);
    world.remote('s', '10.9.9.2', 257, [web(81)]);
    world.remote('none', '10.9.9.9', 257, []);
    await world.plan();
    const both = [
      ['10.9.9.1/32', 257, [80]],
      ['10.9.9.2/32', 257, [81]],
    ];
    expect([addresses(), rowsFor(world, 'egress', 257)]).toEqual([both, []]);
    // One more of a number that is known, and an address that moves.
    world.remote('t', '10.9.9.3', 257, [web(81)]);
    await world.plan();
    expect(addresses()).toEqual([...both, ['10.9.9.3/32', 257, [81]]]);
    world.remote('t', '10.9.9.4', 257, [web(81)]);
    await world.plan();
    expect(addresses()).toEqual([...both, ['10.9.9.4/32', 257, [81]]]);
    // Two pods that claim one address.
    world.remote('u', '10.9.9.4', 257, [web(80)]);
    await world.plan();
    expect(addresses()).toEqual(both);
    world.db.write([world.tables.remoteEndpoints], (txn) => {
      for (const name of ['r', 'u']) txn.delete(world.tables.remoteEndpoints, `ns/${name}`);
    });
    await world.plan();
    expect(addresses()).toEqual([
      ['10.9.9.2/32', 257, [81]],
      ['10.9.9.4/32', 257, [81]],
    ]);
    // Endpoints have moved to another slot: what has left counts for a plan more.
    let plans = 1;
    for (; (await world.plan()).again; plans += 1);
    expect(plans).toBeLessThan(5);
    expect([addresses(), rowsFor(world, 'egress', 257)]).toEqual([[], [[6, 81, 81, 'allow']]]);
  });

  it('counts the names of pods on this node too', async () => {
    const world = basic();
    world.identity(257, 'b');
    world.policy('p', 1, [byName('allow', 'egress', 'b')]);
    world.pod('peer', 'b', [web(90)]);
    world.endpoint(2, { pod: { namespace: 'ns', name: 'peer' } });
    await world.plan();
    expect(rowsFor(world, 'egress', 257)).toEqual([[6, 90, 90, 'allow']]);
  });

  it('denies an unknown peer what a denied name means anywhere, before the address with it comes', async () => {
    const world = basic();
    world.identity(257, 'b');
    const { ports: _, ...all } = byName('allow', 'egress');
    world.policy('p', 1, [{ ...all, cookie: 1 }, byName('deny', 'egress')]);
    await world.plan();
    const old = world.states.get(1)?.slot ?? 0;
    world.remote('r', '10.9.9.1', 257, [web(80)]);
    const plan = await world.plan();
    expect(plan).toMatchObject({ slotsGone: [old], ipcache: [], again: true });
    const unknown = world.slots.get(world.states.get(1)?.slot ?? 0)?.compiled.egress.scope.unknown;
    expect(unknown).toContainEqual(expect.objectContaining({ from: 80, to: 80, verdict: 'deny' }));
    expect(rowsFor(world, 'egress', 257)).toContainEqual([6, 80, 80, 'deny']);
    expect(await world.plan()).toMatchObject({ slots: [], ipcache: [{ identity: 257 }], again: false });
  });

  it('asks for no second plan when a pod goes whose names no rule uses', async () => {
    const world = basic();
    world.policy('p', 1, [rule('a', 'b', 7)]);
    world.remote('r', '10.9.9.1', 257, [web(80)]);
    await world.plan();
    world.db.write([world.tables.remoteEndpoints], (txn) => txn.delete(world.tables.remoteEndpoints, 'ns/r'));
    expect((await world.plan()).again).toBe(false);
  });
});
