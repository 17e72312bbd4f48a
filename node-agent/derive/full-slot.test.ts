/** A slot in force that has no room for what it is to hold. */
import { expect, it } from '@jest/globals';
import type { ResolvedRule } from '@weir/policy';
import { classOf, rowsByClass } from './classes.ts';
import { both } from './rows.ts';
import type { KernelSlot } from './slot-rows.ts';
import { noneAround } from './testing/class-at.ts';
import { basic, byName, rule, type World, web } from './testing/model-world.ts';

const EVIL = 40_000;
const FIRST = 10_000;
const all: ResolvedRule = { ...rule('a', undefined, 1), peers: [{ entity: 'all' }] };
const deny = (peer: string | { cidr: string }): ResolvedRule => ({ ...rule('a', peer, 999), verdict: 'deny' });

const scope = ['', '', ''] as const;
const FOUND: KernelSlot = {
  scope: both(() => scope),
  classes: both(() => new Map()),
  addresses: both(() => ''),
  rows: both(() => new Map()),
};

/** The verdict of endpoint 1's slot for a peer; undefined: no address has its identity, so that it is unknown. */
function verdict(world: World, address: string, direction: 'ingress' | 'egress', port: number): string | undefined {
  const identity = world.ipcache.get(address)?.identity;
  const slot = world.slots.get(world.states.get(1)?.slot ?? 0);
  if (identity === undefined || slot === undefined) return undefined;
  const rows = rowsByClass(slot, direction).get(classOf(slot.classes[direction], identity, noneAround)) ?? [];
  return rows.find(({ protocol, from, to }) => protocol === 6 && from <= port && port <= to)?.verdict ?? 'none';
}

async function settle(world: World): Promise<void> {
  while ((await world.plan()).again);
}

/** Peers by which of `sets` name them, three each: each combination is a class. */
function* threes(sets: number): Generator<readonly [number, number, number]> {
  for (let a = 0; a < sets; a += 1)
    for (let b = a + 1; b < sets; b += 1) for (let c = b + 1; c < sets; c += 1) yield [a, b, c];
}

it('a slot whose class numbers are used up by peers that change without end is followed by another', async () => {
  // 40 sets have 9,880 combinations of three.
  const [sets, peers] = [40, 1_500];
  const world = basic({ classNumbers: 6_500 });
  const ports = Array.from({ length: sets }, (_, at): ResolvedRule => {
    const port = { protocol: 'TCP' as const, from: 100 + 2 * at, to: 100 + 2 * at };
    return { ...rule('a', `s${at}`, 10 + at), ports: [port] };
  });
  world.policy('ports', 1, [...ports, { ...all, ports: [{ protocol: 'TCP', from: 80, to: 80 }] }]);
  world.policy('admin', 1, [deny('evil')]);
  world.peerSet('evil', []);
  const combinations = [...threes(sets)];
  const slots = new Set<number>();
  for (let round = 0; round < 6; round += 1) {
    const members = Array.from({ length: sets }, (): number[] => []);
    for (let peer = 0; peer < peers; peer += 1)
      for (const set of combinations[round * peers + peer] ?? []) members[set]?.push(FIRST + peer);
    for (const [at, ids] of members.entries()) world.peerSet(`s${at}`, ids);
    await settle(world);
    slots.add(world.states.get(1)?.slot ?? 0);
  }
  expect(slots.size).toBe(2);
  world.identity(EVIL, 'evil');
  world.peerSet('evil', [EVIL]);
  world.remote('evil', '10.0.9.9', EVIL);
  await settle(world);
  expect(verdict(world, '10.0.9.9/32', 'ingress', 80)).toBe('deny');
  expect(world.model.failure(1)).toBeUndefined();
});

it('a slot that can have no successor, as all are in use, is given up: its endpoints are closed until a slot is free', async () => {
  const world = basic({ keepsSlots: true });
  world.identity(257, 'b');
  world.remote('known', '10.9.9.7', 257, [web(8080)]);
  const egress = { ...all, direction: 'egress' as const };
  world.policy('p', 1, [egress, byName('deny', 'egress')]);
  const slots = new Map(Array.from({ length: 4094 }, (_, at) => [at + 2, FOUND] as const));
  world.model.adopt({ slots, endpoints: [], ipcache: [] });
  await settle(world);
  expect(verdict(world, '10.9.9.7/32', 'egress', 9090)).toBe('allow');
  const before = world.states.get(1);
  // Its port gives the name another number, which another slot would have to say of peers that nobody knows.
  world.remote('known', '10.9.9.7', 257, [web(9090)]);
  await settle(world);
  expect(world.model.failure(1)?.message).toMatch('all 4095 policy slots are in use');
  expect(world.states.get(1)).toMatchObject({
    ...{ slot: 0, state: 'not-ready', enforced: { ingress: true, egress: true } },
    reason: world.model.failure(1)?.message,
  });
  expect(world.states.get(1)?.revision).toBeGreaterThan(before?.revision ?? 0);
  // Its own, which no endpoint points at any more.
  world.model.slotReleased(1);
  await settle(world);
  expect(world.model.failure(1)).toBeUndefined();
  expect(world.states.get(1)?.slot).toBe(1);
  expect(verdict(world, '10.9.9.7/32', 'egress', 9090)).toBe('deny');
  expect(verdict(world, '10.9.9.7/32', 'egress', 8080)).toBe('allow');
});
