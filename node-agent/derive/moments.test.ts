/** What is told while something else is being taken in, or computed. */
import { describe, expect, it } from '@jest/globals';
import { basic, copy, rule, World } from './testing/model-world.ts';

/** The same inputs in a world whose plans take every break that they may take. */
function eager(from: World): World {
  const world = new World({ eager: true });
  copy(from, world);
  return world;
}

function drop(world: World, table: 'policies' | 'peerSets' | 'namespaces', key: string): void {
  const handle = world.tables[table] as World['tables']['policies'];
  world.db.write([handle], (txn) => txn.delete(handle, key));
}

/** Takes in everything, one change at a time; `once` happens after the first. */
function pull(world: World, once: () => void): void {
  expect(world.model.pull(1)).toBe(true);
  once();
  while (world.model.pull(1));
}

describe('a plan', () => {
  it('is computed from one moment, whatever is written in its breaks, and the next one from the next', async () => {
    const before = basic();
    before.identity(257, 'b');
    before.remote('r', '10.9.9.1', 257);
    before.policy('p', 1, [rule('a', 'b', 7)]);
    await before.plan();
    const world = eager(before);
    world.meanwhile = () => {
      world.policy('p', 2, [rule('a', 'c', 8)]);
      world.policy('q', 1, [rule('a', 'c', 9)]);
      drop(world, 'peerSets', 'hash-b');
      world.peerSet('c', [257]);
      world.identity(257, 'c');
      world.remote('r', '10.9.9.2', 257);
      drop(world, 'namespaces', 'ns');
      world.pod('web', 'c');
    };
    await world.plan();
    expect(world.breaths).toBeGreaterThan(10);
    expect(world.result()).toEqual(before.result());

    const after = new World();
    world.namespace();
    world.meanwhile = () => undefined;
    while ((await world.plan()).again);
    copy(world, after);
    while ((await after.plan()).again);
    expect(world.result()).toEqual(after.result());
    expect(world.result()).not.toEqual(before.result());
  });

  it('makes breaks within one large set and its one slot', async () => {
    const SIZE = 4000;
    const world = eager(basic());
    world.policy('p', 1, [rule('a', 'b', 1)]);
    await world.plan();
    const ids = Array.from({ length: SIZE }, (_, at) => 1000 + at);
    world.peerSet('b', ids);
    const before = world.breaths;
    const { slots } = await world.plan();
    expect(slots.map(({ classes }) => ids.every((id) => classes.ingress.has(id)))).toEqual([true]);
    // A break where each identity was judged, and one for every few hundred that were compiled, numbered and compared.
    expect(world.breaths - before).toBeGreaterThan(SIZE + 3 * (SIZE / 256));
  });
});

describe('what is in force', () => {
  /** Policy p, generation 1, names sets a and b; generation 2 waits for set c, and the cluster has dropped set b. */
  async function superseded(): Promise<World> {
    const world = basic();
    world.policy('p', 1, [rule('a', 'b', 7)]);
    await world.plan();
    world.policy('p', 2, [rule('a', 'c', 8)]);
    drop(world, 'peerSets', 'hash-b');
    return world;
  }

  /** Identities of the cluster that endpoint 1's slot tells apart. */
  function membersOfB(world: World): readonly number[] | undefined {
    const slot = world.slots.get(world.states.get(1)?.slot ?? 0);
    return slot && [...slot.classes.ingress.keys()].filter((id) => id >= 256);
  }

  it('keeps the set that it had last', async () => {
    const world = await superseded();
    pull(world, () => world.peerSet('b', [300]));
    await world.plan();
    expect(world.states.get(1)?.policies).toEqual({ p: 1 });
    expect(membersOfB(world)).toEqual([300]);
    drop(world, 'peerSets', 'hash-b');
    pull(world, () => world.namespace());
    await world.plan();
    expect(membersOfB(world)).toEqual([300]);
  });

  it('keeps the set that it had, though the set comes and goes before all is taken in', async () => {
    const world = await superseded();
    await world.plan();
    world.peerSet('b', [300]);
    world.pod('other', 'b');
    pull(world, () => drop(world, 'peerSets', 'hash-b'));
    await world.plan();
    expect(world.states.get(1)?.policies).toEqual({ p: 1 });
    expect(membersOfB(world)).toEqual([257]);
  });
});
