/** A pod that is given other labels: what is told of it comes by several watches, each in its own time. */
import { describe, expect, it } from '@jest/globals';
import fc from 'fast-check';
import { runs } from '../../test/runs.ts';
import { tableKey } from '../create-tables.ts';
import { classOf, FIRST_CLASS } from './classes.ts';
import { REFUSED_GRACE_MS, UNLISTED_GRACE_MS } from './identities.ts';
import { noneAround } from './testing/class-at.ts';
import { basic, byName, rule, type World, web } from './testing/model-world.ts';

const ADDRESS = '10.9.9.1';

/** Endpoint 1 lets apps b and c in, and nobody else. Pod r, of app b, is on another node. */
async function guarded(): Promise<World> {
  const world = basic();
  world.identity(257, 'b');
  world.peerSet('c', []);
  world.policy('p', 1, [rule('a', 'b', 7), rule('a', 'c', 8)]);
  world.remote('r', ADDRESS, 257, [], 'u-r');
  await world.plan();
  expect(judgedAs(world)).toBe(257);
  return world;
}

function judgedAs(world: World, address = ADDRESS): number {
  return world.ipcache.get(`${address}/32`)?.identity ?? 0;
}

function letIn(world: World, address: string): boolean {
  const slot = world.slots.get(world.states.get(1)?.slot ?? 0);
  if (slot === undefined) throw new Error('endpoint 1 has no policy');
  return classOf(slot.classes.ingress, judgedAs(world, address), noneAround) >= FIRST_CLASS;
}

describe('a pod of this node that is relabelled while its agent is down', () => {
  /** A restarted agent, over a kernel that has endpoint 1 as `identity`; the operator has given the new labels none yet. */
  async function restarted(identity: number): Promise<World> {
    const world = basic();
    const found = { id: 1, ifindex: 101, addresses: ['10.0.0.1'], identity, slot: 0, revision: 3 };
    world.model.adopt({
      endpoints: [{ ...found, enforced: { ingress: false, egress: false } }],
      slots: new Map(),
      ipcache: [],
    });
    world.pod('web', 'a', [], 'next');
    await world.plan();
    return world;
  }

  it('stays what the kernel says, with all that is said of that', async () => {
    const world = await restarted(256);
    expect(world.states.get(1)).toMatchObject({ state: 'ready', identity: 256 });
    expect(judgedAs(world, '10.0.0.1')).toBe(256);
    world.identity(300, 'a', 'next');
    await world.plan();
    expect(world.states.get(1)).toMatchObject({ state: 'ready', identity: 300 });
  });

  it('waits, closed, where the kernel has a number that nobody knows', async () => {
    const world = await restarted(299);
    expect(world.states.get(1)).toMatchObject({ identity: 0, enforced: { ingress: true, egress: true } });
  });
});

describe('a relabelled pod of another node', () => {
  it('keeps its identity until the new one has come, which then has its rights at once', async () => {
    const world = await guarded();
    world.remote('r', ADDRESS, 258, [], 'u-r');
    await world.plan();
    expect(judgedAs(world)).toBe(257);
    world.identity(258, 'c');
    await world.plan();
    expect(judgedAs(world)).toBe(258);
    expect(letIn(world, ADDRESS)).toBe(true);
  });

  it('loses its rights with the first plan that knows the new identity, and gets no old one back', async () => {
    const world = await guarded();
    world.remote('r', ADDRESS, 259, [], 'u-r');
    await world.plan();
    expect(letIn(world, ADDRESS)).toBe(true);
    world.identity(259, 'x');
    await world.plan();
    expect([judgedAs(world), letIn(world, ADDRESS)]).toEqual([259, false]);
    world.db.write([world.tables.identities], (txn) => txn.delete(world.tables.identities, tableKey.identity(259)));
    await world.plan();
    expect(judgedAs(world)).toBe(0);
  });

  it('keeps its identity over several labellings that cannot be judged', async () => {
    const world = await guarded();
    for (const identity of [258, 259, 260]) {
      world.remote('r', ADDRESS, identity, [], 'u-r');
      await world.plan();
      expect(judgedAs(world)).toBe(257);
    }
    world.remote('r', ADDRESS, 257, [], 'u-r');
    await world.plan();
    expect(judgedAs(world)).toBe(257);
  });

  it.each<readonly [string, (world: World) => void]>([
    ['another pod of its name', (world) => world.remote('r', ADDRESS, 258, [], 'u-next')],
    ['a pod of which the slice does not say which it is', (world) => world.remote('r', ADDRESS, 258)],
    [
      'another pod that takes the address over',
      (world) => {
        world.db.write([world.tables.remoteEndpoints], (txn) => txn.delete(world.tables.remoteEndpoints, 'ns/r'));
        world.remote('s', ADDRESS, 258, [], 'u-r');
      },
    ],
    [
      'a pod whose old number means other labels now',
      (world) => {
        world.remote('r', ADDRESS, 258, [], 'u-r');
        world.identity(257, 'b', 'other');
      },
    ],
    [
      'a pod whose old identity is gone',
      (world) => {
        world.remote('r', ADDRESS, 258, [], 'u-r');
        world.db.write([world.tables.identities], (txn) => txn.delete(world.tables.identities, tableKey.identity(257)));
      },
    ],
  ])('is not confused with %s: that is unknown', async (_, change) => {
    const world = await guarded();
    change(world);
    await world.plan();
    expect(judgedAs(world)).toBe(0);
  });

  it('is unknown at an address that it did not have before', async () => {
    const world = await guarded();
    world.remote('r', '10.9.9.2', 258, [], 'u-r');
    await world.plan();
    expect([judgedAs(world), judgedAs(world, '10.9.9.2')]).toEqual([0, 0]);
  });

  it('loses what it kept when the old identity goes while it waits', async () => {
    const world = await guarded();
    world.remote('r', ADDRESS, 258, [], 'u-r');
    await world.plan();
    world.db.write([world.tables.identities], (txn) => txn.delete(world.tables.identities, tableKey.identity(257)));
    await world.plan();
    expect(judgedAs(world)).toBe(0);
  });

  it('is reached by the name of its port all the time', async () => {
    const world = await guarded();
    world.policy('named', 1, [byName('allow', 'egress', 'b'), { ...byName('allow', 'egress', 'c'), cookie: 9 }]);
    world.remote('r', ADDRESS, 257, [web(80)], 'u-r');
    const reached = (): boolean => {
      const slot = world.slots.get(world.states.get(1)?.slot ?? 0);
      const own = slot?.compiled.egress.classes.find(({ members }) => members.includes(judgedAs(world)));
      return own?.rows.some(({ from, to, verdict }) => from <= 80 && to >= 80 && verdict === 'allow') === true;
    };
    const steps = [
      () => undefined,
      () => world.remote('r', ADDRESS, 258, [web(80)], 'u-r'),
      () => world.identity(258, 'c'),
      () => world.peerSet('c', [258]),
    ];
    for (const step of steps) {
      step();
      for (let again = true; again; ) {
        ({ again } = await world.plan());
        expect(reached()).toBe(true);
      }
    }
    expect(judgedAs(world)).toBe(258);
  });
});

describe('a relabelled pod of this node', () => {
  it('does not keep a number that means other labels now', async () => {
    const world = basic();
    await world.plan();
    world.pod('web', 'c');
    await world.plan();
    expect(world.states.get(1)).toMatchObject({ identity: 256, state: 'ready' });
    world.identity(256, 'b');
    await world.plan();
    expect(world.states.get(1)).toMatchObject({ identity: 0, state: 'waiting-for-identity' });
  });
});

describe('rules of a pod of this node', () => {
  it('are those of its labels, though its number was given to them again', async () => {
    const world = basic();
    world.peerSet('c', []);
    world.policy('p', 1, [rule('c', 'b', 7)]);
    await world.plan();
    expect(world.states.get(1)).toMatchObject({ identity: 256, policies: {} });
    world.pod('web', 'c');
    world.identity(256, 'c');
    await world.plan();
    expect(world.states.get(1)).toMatchObject({ identity: 256, policies: { p: 1 }, enforced: { ingress: true } });
  });
});

describe('whatever the order in which watches deliver', () => {
  const APPS_OF = ['b', 'c', 'x'] as const;
  type App = (typeof APPS_OF)[number];
  const labelling = fc.record({ app: fc.constantFrom(...APPS_OF), version: fc.nat(2) });

  it.each(['another node', 'this node'])(
    'a pod of %s is judged by a label set that it has, or had before while the news of the last one is not complete',
    async (where) => {
      let gaps = 0;
      await fc.assert(
        fc.asyncProperty(
          fc.array(labelling, { minLength: 1, maxLength: 6 }),
          fc.array(fc.nat(3), { maxLength: 60 }),
          async (labels, order) => {
            const world = basic();
            world.peerSet('c', []);
            world.policy('p', 1, [rule('a', 'b', 7), rule('a', 'c', 8)]);
            const address = where === 'this node' ? '10.0.0.2' : ADDRESS;
            if (where === 'this node') world.endpoint(2, { pod: { namespace: 'ns', name: 'r', uid: 'u-r' } });

            // What the operator writes for each labelling, each kind for itself in order.
            const members: Record<'b' | 'c', number[]> = { b: [257], c: [] };
            const numbers = new Map<string, number>();
            const watches: (() => void)[][] = [[], [], [], []];
            const [pods, peerSets, identities, slices] = watches as [
              (() => void)[],
              (() => void)[],
              (() => void)[],
              (() => void)[],
            ];
            const ends: (readonly number[])[] = [];
            const ids: number[] = [];
            const moves: readonly { readonly app: App; readonly version: number }[] = [
              { app: 'b', version: 9 },
              ...labels,
            ];
            for (const { app, version } of moves) {
              const text = `v${version}`;
              pods.push(() => world.pod('r', app, [], text));
              let id = numbers.get(`${app} ${text}`);
              if (id === undefined) {
                const number = 300 + numbers.size;
                id = number;
                numbers.set(`${app} ${text}`, number);
                if (app !== 'x') {
                  members[app] = [...members[app], number];
                  const row = members[app];
                  peerSets.push(() => world.peerSet(app, row));
                }
                identities.push(() => world.identity(number, app, text));
              }
              const identity = id;
              ids.push(identity);
              slices.push(() => world.remote('r', address, identity, [], 'u-r'));
              ends.push(watches.map((watch) => watch.length));
            }
            const told = [0, 0, 0, 0];
            const tell = (watch: number): boolean => {
              const event = watches[watch]?.[told[watch] ?? 0];
              if (event === undefined) return false;
              event();
              told[watch] = (told[watch] ?? 0) + 1;
              return true;
            };
            /** The first of the moves that it may still be judged by. */
            let from = 0;
            const check = async (): Promise<void> => {
              await world.plan();
              const complete = ends.findLastIndex((end) => end.every((count, watch) => (told[watch] ?? 0) >= count));
              const begun = ends.findLastIndex(
                (_, move) =>
                  move === 0 || watches.some((__, watch) => (told[watch] ?? 0) > (ends[move - 1]?.[watch] ?? 0)),
              );
              // News of several moves at once: the ones between need not be taken one by one, but the last counts when it is complete.
              if (complete >= begun) from = complete;
              else gaps += 1;
              const window = ids.slice(from, Math.max(complete, begun) + 1);
              const judged = judgedAs(world, address);
              expect(window).toContain(judged);
              from += window.indexOf(judged);
              expect(letIn(world, address)).toBe(moves[from]?.app !== 'x');
            };
            for (const watch of [0, 1, 2, 3]) while ((told[watch] ?? 0) < (ends[0]?.[watch] ?? 0)) tell(watch);
            await check();
            for (const watch of [...order, ...watches.flatMap((events, at) => events.map(() => at))])
              if (tell(watch)) await check();
            expect(letIn(world, address)).toBe(moves.at(-1)?.app !== 'x');
          },
        ),
        { numRuns: runs(150) },
      );
      expect(gaps).toBeGreaterThan(runs(150));
    },
  );
});

describe('a pod of this node whose new labels the operator refuses an identity', () => {
  /** Endpoint 1 is in a slice, and has been relabelled. */
  async function relabelled(): Promise<World> {
    const world = basic();
    world.pod('web', 'a', [], undefined, ['10.0.0.1']);
    world.remote('web', '10.0.0.1', 256, [], 'u-web');
    await world.plan();
    world.pod('web', 'a', [], 'next', ['10.0.0.1']);
    await world.plan();
    expect(world.states.get(1)).toMatchObject({ state: 'ready', identity: 256 });
    return world;
  }
  const unlist = ({ db, tables }: World): void =>
    db.write([tables.remoteEndpoints], (txn) => void txn.delete(tables.remoteEndpoints, tableKey.pod('ns', 'web')));

  it('is judged as before while its slice has it: the operator has not looked yet', async () => {
    const world = await relabelled();
    expect(world.model.dueAt()).toBeUndefined();
    world.pass(3_600_000);
    world.endpoint(1, { pod: { namespace: 'ns', name: 'web', uid: 'u-web' } });
    await world.plan();
    expect(world.states.get(1)).toMatchObject({ state: 'ready', identity: 256 });
    expect(judgedAs(world, '10.0.0.1')).toBe(256);
  });

  it('is closed once no slice has it: no policy that selects it by the new labels would reach it', async () => {
    const world = await relabelled();
    unlist(world);
    await world.plan();
    expect(world.states.get(1)).toMatchObject({ state: 'ready', identity: 256 });
    expect(world.model.dueAt()).toBe(REFUSED_GRACE_MS);
    world.pass(REFUSED_GRACE_MS);
    await world.plan();
    expect(world.states.get(1)).toMatchObject({
      state: 'waiting-for-identity',
      identity: 0,
      enforced: { ingress: true, egress: true },
      reason: expect.stringContaining('identity'),
    });
    expect(judgedAs(world, '10.0.0.1')).toBe(0);
    expect(world.model.dueAt()).toBeUndefined();
    world.identity(300, 'a', 'next');
    await world.plan();
    expect(world.states.get(1)).toMatchObject({ state: 'ready', identity: 300 });
  });

  it('is closed, too, where its status has lost the address; and later where no slice has ever had it', async () => {
    const world = await relabelled();
    world.pod('web', 'a', [], 'next', []);
    unlist(world);
    await world.plan();
    world.pass(REFUSED_GRACE_MS);
    await world.plan();
    expect(world.states.get(1)).toMatchObject({ state: 'waiting-for-identity', identity: 0 });

    const fresh = basic();
    await fresh.plan();
    fresh.pod('web', 'a', [], 'next');
    await fresh.plan();
    expect(fresh.model.dueAt()).toBe(UNLISTED_GRACE_MS);
    fresh.pass(UNLISTED_GRACE_MS - 1);
    await fresh.plan();
    expect(fresh.states.get(1)).toMatchObject({ state: 'ready', identity: 256 });
    fresh.pass(1);
    await fresh.plan();
    expect(fresh.states.get(1)).toMatchObject({ state: 'waiting-for-identity', identity: 0 });
  });

  it('goes on where a slice has it again in time', async () => {
    const world = await relabelled();
    unlist(world);
    await world.plan();
    world.pass(REFUSED_GRACE_MS - 1);
    world.remote('web', '10.0.0.1', 256, [], 'u-web');
    await world.plan();
    world.pass(REFUSED_GRACE_MS);
    await world.plan();
    expect(world.states.get(1)).toMatchObject({ state: 'ready', identity: 256 });
  });
});
