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
  for (let plan = await world.plan(); plan.again; ) plan = await world.plan();
}

/** How many rows the slot of endpoint 1 has for the identity. */
function rowsOf(world: World, identity: number): number | undefined {
  const slot = world.slots.get(world.states.get(1)?.slot ?? 0);
  return slot && rowsByClass(slot, 'ingress').get(classOf(slot.classes.ingress, identity, noneAround))?.length;
}

const EVERYBODY = [300, 300 + FIT, 9999];

it('a direction for which rules in force have no room any more is closed, and judged again', async () => {
  const world = await start(FIT - 1);
  expect([...world.model.excesses(1)]).toEqual([]);
  expect(EVERYBODY.map((id) => rowsOf(world, id))).toEqual([PORTS + 1, PORTS, PORTS]);
  const before = world.states.get(1);
  for (const at of [FIT - 1, FIT]) peer(world, at);
  await settle(world);
  expect(world.model.failure(1)).toBeUndefined();
  expect([...world.model.excesses(1)].map(([direction]) => direction)).toEqual(['ingress']);
  expect(EVERYBODY.map((id) => rowsOf(world, id) ?? 0)).toEqual([0, 0, 0]);
  expect(world.states.get(1)).toMatchObject({
    ...{ state: 'ready', policies: { p: 1 }, enforced: { ingress: true } },
  });
  expect(world.states.get(1)?.revision).toBeGreaterThan(before?.revision ?? 0);
});

it('has its rules again once there is room', async () => {
  const world = await start(FIT + 1);
  expect(EVERYBODY.map((id) => rowsOf(world, id) ?? 0)).toEqual([0, 0, 0]);
  world.db.write([world.tables.identities, world.tables.remoteEndpoints], (txn) => {
    txn.delete(world.tables.identities, tableKey.identity(300));
    txn.delete(world.tables.remoteEndpoints, tableKey.pod('ns', 'peer-0'));
  });
  await settle(world);
  expect([...world.model.excesses(1)]).toEqual([]);
  expect(rowsOf(world, 300 + FIT)).toBe(PORTS + 1);
});

it('computes the same as a fresh model', async () => {
  const grown = await start(FIT - 2);
  for (const at of [FIT, FIT - 1, FIT - 2]) peer(grown, at);
  await settle(grown);
  const fresh = await start(FIT + 1);
  expect(grown.result()).toEqual(fresh.result());
});
