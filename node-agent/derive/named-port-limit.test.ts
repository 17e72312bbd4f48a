/** A pod of this node with more named ports than a pod may have: as the operator gives it no identity, nor does its node. */
import { expect, it } from '@jest/globals';
import { tableKey } from '../create-tables.ts';
import { basic, byName, type World } from './testing/model-world.ts';

const ADDRESS = '10.0.0.1/32';
const REASON =
  /^pod ns\/web has 257 named ports, of at most 256: take the names off ports that no policy names, or spread its containers over several pods$/;

function setExcess({ db, tables }: World, excess: boolean): void {
  db.write([tables.localPods], (txn) => {
    const known = txn.get(tables.localPods, tableKey.pod('ns', 'web'));
    if (known === undefined) throw new Error('there is no pod ns/web');
    const { portExcess: _, ...pod } = known;
    const more = excess ? { namedPorts: [], portExcess: '257 named ports, of at most 256' } : {};
    txn.upsert(tables.localPods, { ...pod, ...more });
  });
}

const closed = {
  state: 'waiting-for-identity',
  identity: 0,
  enforced: { ingress: true, egress: true },
  reason: expect.stringMatching(REASON),
};

it('is closed and unknown, though its labels have an identity, and says why', async () => {
  const world = basic();
  setExcess(world, true);
  await world.plan();
  expect(world.states.get(1)).toMatchObject(closed);
  expect(world.ipcache.get(ADDRESS)?.identity ?? 0).toBe(0);
  setExcess(world, false);
  await world.plan();
  expect(world.states.get(1)).toMatchObject({ state: 'ready', identity: 256 });
});

it('is closed also where it was known before: of its names none is known, and a deny by one of them would open', async () => {
  const world = basic();
  world.policy('p', 1, [byName('deny', 'ingress')]);
  await world.plan();
  expect(world.states.get(1)).toMatchObject({ state: 'ready', identity: 256 });
  setExcess(world, true);
  await world.plan();
  expect(world.states.get(1)).toMatchObject(closed);
  expect(world.ipcache.get(ADDRESS)?.identity ?? 0).toBe(0);
});

it('counts nothing of a pod of that name that is another', async () => {
  const world = basic();
  await world.plan();
  world.endpoint(1, { pod: { namespace: 'ns', name: 'web', uid: 'another' } });
  setExcess(world, true);
  await world.plan();
  expect(world.states.get(1)?.reason).toMatch(/has uid u-web, the endpoint is of another$/);
});
