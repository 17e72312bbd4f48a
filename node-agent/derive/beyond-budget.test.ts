/** Rules that come to more rows than a slot has room for, as their peers come and go. */
import { expect, it } from '@jest/globals';
import { MOST_ROWS, type ResolvedRule } from '@weir/policy';
import { tableKey } from '../create-tables.ts';
import { classOf, rowsByClass } from './classes.ts';
import { noneAround } from './testing/class-at.ts';
import { basic, rule, type World, type WorldOptions } from './testing/model-world.ts';

/** A tenth of what a direction may have. */
const MOST = MOST_ROWS / 10;
/** Rules for everybody. So many classes of peers beside them fit. */
const PORTS = 100;
const FIT = 58;

const port = (at: number): ResolvedRule => ({
  ...rule('a', undefined, 1 + at),
  peers: [{ entity: 'all' }],
  ports: [{ protocol: 'UDP', from: at, to: at }],
});
const version = (at: number): ResolvedRule => ({
  ...rule('a', undefined, 5000 + at),
  peers: [{ peerSet: `hash-v${at}` }],
  ports: [{ protocol: 'UDP', from: 30_000 + at, to: 30_000 + at }],
});
const deny: ResolvedRule = { ...rule('a', 'b', 9000), verdict: 'deny', ports: [{ protocol: 'UDP', from: 1, to: 1 }] };
const RULES = [...Array.from({ length: PORTS }, (_, at) => port(at)), deny];

/** A pod of app b whose version makes a class of its own. */
function peer(world: World, at: number, id = 300 + at): void {
  world.identity(id, 'b', `v${at}`);
  world.remote(`peer-${at}`, `10.9.9.${at}`, id);
}

async function start(peers: number, options: WorldOptions = {}): Promise<World> {
  const world = basic({ mostRows: MOST, ...options });
  world.db.write([world.tables.peerSets], (txn) => {
    for (let at = 0; at <= FIT; at++) {
      const selector = { requirements: [{ key: 'k8s:version', operator: 'In' as const, values: [`v${at}`] }] };
      txn.upsert(world.tables.peerSets, { hash: `hash-v${at}`, selector, identities: [], origin: 'cluster' });
    }
  });
  for (let at = 0; at < peers; at++) peer(world, at);
  world.policy('p', 1, [...RULES, ...Array.from({ length: FIT + 1 }, (_, at) => version(at))]);
  await settle(world);
  return world;
}

async function settle(world: World): Promise<void> {
  for (let plan = await world.plan(); plan.again || plan.waiting; ) plan = await world.plan();
}

/** How many rows the slot of endpoint 1 has for the identity, and what it is told of ports. */
function rowsOf(world: World, identity: number): number | undefined {
  return rowsIn(world, world.states.get(1)?.slot ?? 0, identity);
}

function rowsIn(world: World, number: number, identity: number): number | undefined {
  const slot = world.slots.get(number);
  return slot && rowsByClass(slot, 'ingress').get(classOf(slot.classes.ingress, identity, noneAround))?.length;
}

it('a peer for which rules in force have no room is denied, not judged as a pod that no rule names', async () => {
  const world = await start(FIT - 1);
  expect([...world.model.excesses(1)]).toEqual([]);
  const before = world.states.get(1);
  // Of this class only: what scopes, reserved identities and other peers are told of ports stays.
  for (const at of [FIT - 1, FIT]) peer(world, at);
  await settle(world);
  expect(world.model.failure(1)).toBeUndefined();
  expect([...world.model.excesses(1)]).toMatchObject([['ingress', { denied: 1 }]]);
  expect([300, 300 + FIT - 1, 300 + FIT, 9999].map((id) => rowsOf(world, id))).toEqual([
    PORTS + 1,
    PORTS + 1,
    0,
    PORTS,
  ]);
  expect(world.states.get(1)).toMatchObject({ state: 'ready', slot: before?.slot, policies: { p: 1 } });
  expect(world.states.get(1)?.revision).toBeGreaterThan(before?.revision ?? 0);
});

it('it has its rules once there is room', async () => {
  const world = await start(FIT + 1);
  expect(rowsOf(world, 300 + FIT)).toBe(0);
  world.db.write([world.tables.identities, world.tables.remoteEndpoints], (txn) => {
    txn.delete(world.tables.identities, tableKey.identity(300));
    txn.delete(world.tables.remoteEndpoints, tableKey.pod('ns', 'peer-0'));
  });
  await settle(world);
  expect([...world.model.excesses(1)]).toEqual([]);
  expect(rowsOf(world, 300 + FIT)).toBe(PORTS + 1);
});

it('a number that is given to other labels is judged by these', async () => {
  const world = await start(FIT + 1);
  peer(world, FIT, 301);
  world.identity(300 + FIT, 'b', 'v1');
  await settle(world);
  expect([301, 300 + FIT].map((id) => rowsOf(world, id))).toEqual([PORTS + 1, 0]);
});

it('concludes the same as a fresh model', async () => {
  const grown = await start(FIT - 2);
  for (const at of [FIT, FIT - 1, FIT - 2]) peer(grown, at);
  await settle(grown);
  const fresh = await start(FIT + 1);
  expect(grown.conclusion()).toEqual(fresh.conclusion());
});

it('is told of a peer that was denied already, as no rule let it through, and no more once it fits', async () => {
  const world = basic({ mostRows: MOST });
  // 6,540 ports.
  const large = Array.from({ length: 60 }, (_, at): ResolvedRule => {
    const protocol = (['TCP', 'UDP', 'SCTP'] as const)[at % 3] ?? 'TCP';
    const ports = Array.from({ length: 109 }, (_each, n) => 1 + 2 * (Math.floor(at / 3) * 109 + n));
    return { ...rule('a', 'b', 1 + at), ports: ports.map((from) => ({ protocol, from, to: from })) };
  });
  // No pod gives the name a number.
  const nothing: ResolvedRule = { ...rule('a', 'c', 70_000), ports: [{ protocol: 'TCP', name: 'metrics' }] };
  for (const app of ['b', 'c']) world.peerSet(app, []);
  world.policy('p', 1, [...large, nothing]);
  const denied: unknown[] = [];
  for (const app of ['c', 'b', 'c']) {
    world.identity(300, app);
    world.remote('peer', '10.9.9.1', 300);
    await settle(world);
    expect(rowsOf(world, 300)).toBe(0);
    denied.push([...world.model.excesses(1)].map(([, excess]) => excess.denied));
  }
  expect(denied).toEqual([[], [1], []]);
});

it('slots that are beyond their budget take a new peer in turn, and are closed to it until then', async () => {
  const world = await start(FIT + 1, { work: 0 });
  world.pod('other', 'a', [], 'other');
  world.identity(290, 'a', 'other');
  world.endpoint(2, { pod: { namespace: 'ns', name: 'other', uid: 'u-other' } });
  world.policy('own', 1, [{ ...deny, subject: 'hash-a2', cookie: 9001 }]);
  const selector = { requirements: [{ key: 'k8s:version', operator: 'In' as const, values: ['other'] }] };
  world.db.write([world.tables.peerSets], (txn) =>
    txn.upsert(world.tables.peerSets, { hash: 'hash-a2', selector, identities: [], origin: 'cluster' }),
  );
  await settle(world);
  const slots = [1, 2].map((id) => world.states.get(id)?.slot ?? 0);
  expect(new Set(slots).size).toBe(2);
  const revisions = [1, 2].map((id) => world.states.get(id)?.revision ?? 0);
  // Of a class that has room in both.
  peer(world, 200, 250);
  world.identity(250, 'b', 'v0');
  const seen: (readonly (number | undefined)[])[] = [];
  for (let waiting = true; waiting; ) {
    ({ waiting } = await world.plan());
    seen.push(slots.map((slot) => rowsIn(world, slot, 250)));
    const judgedAnew = [1, 2].map((id, at) => (world.states.get(id)?.revision ?? 0) > (revisions[at] ?? 0));
    expect(judgedAnew).toEqual([true, true]);
  }
  expect(seen.map((rows) => rows.toSorted((a, b) => (a ?? 0) - (b ?? 0)))).toEqual([
    [0, PORTS + 1],
    [PORTS + 1, PORTS + 1],
  ]);
});
