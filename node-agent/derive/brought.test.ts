/** What parts bring to the model: addresses and steps. */
import { expect, it } from '@jest/globals';
import { PartListError } from '@weir/process/parts';
import type { AddressRow } from '../core.ts';
import { STEPS, stepsWith } from './plan-steps.ts';
import { basic } from './testing/model-world.ts';

it('a source of addresses counts where it says: after some of the core’s, before others', async () => {
  const world = basic();
  const { db, model, tables } = world;
  const sites = db.table<AddressRow>({ name: 'sites', key: ({ prefix }) => prefix });
  model.extend({ addresses: [{ name: 'site', after: 'endpoint', table: sites }], steps: [] });
  db.write([tables.nodes, sites], (txn) => {
    txn.upsert(tables.nodes, { name: 'node-2', addresses: ['192.0.2.2'], podCidrs: [], kubeApiserver: false });
    for (const prefix of ['192.0.2.2', '198.51.100.0/24', '2001:db8::1']) txn.upsert(sites, { prefix, identity: 77 });
    txn.upsert(sites, { prefix: '203.0.113.0/24' });
  });
  const { ipcache } = await world.plan();
  const row = (prefix: string): unknown => ipcache.find((each) => each.prefix === prefix);
  expect(row('192.0.2.2/32')).toMatchObject({ identity: 6, source: 'remote-node' });
  expect(row('198.51.100.0/24')).toMatchObject({ identity: 77, source: 'site' });
  expect(row('2001:db8::1/128')).toMatchObject({ identity: 77, source: 'site' });
  // Without an identity of its own the prefix gets one of this node.
  expect(row('203.0.113.0/24')).toMatchObject({ identity: expect.any(Number), source: 'site' });
  db.write([sites], (txn) => void txn.delete(sites, '198.51.100.0/24'));
  expect((await world.plan()).ipcacheGone).toEqual(['198.51.100.0/24']);
});

it('a step is taken in each plan, after the one that it names, and may ask for another plan', async () => {
  const world = basic();
  const { model } = world;
  let again = true;
  model.extend({ addresses: [], steps: [{ name: 'mine', after: 'addresses', run: () => again }] });
  expect((await world.plan()).again).toBe(true);
  again = false;
  await world.plan();
  expect((await world.plan()).again).toBe(false);
  const names = stepsWith([{ name: 'mine', after: 'addresses', run: () => false }], () => undefined).map(
    ({ name }) => name,
  );
  expect(names.filter((name) => name !== 'mine')).toEqual(STEPS.map(({ name }) => name));
  expect(names.indexOf('mine')).toBe(names.indexOf('addresses') + 1);
  expect(() => stepsWith([{ name: 'mine', after: 'nothing', run: () => false }], () => undefined)).toThrow(
    PartListError,
  );
});

it('a step that throws costs no plan what the others have computed, is named, and is tried again', async () => {
  const world = basic();
  const { model } = world;
  let broken = true;
  const run = (): boolean => {
    if (broken) throw new Error('no luck');
    return false;
  };
  model.extend({ addresses: [], steps: [{ name: 'mine', after: 'endpoints', run }] });
  const { endpoints } = await world.plan();
  expect(endpoints.map(({ id }) => id)).toEqual([1]);
  expect(model.failedSteps()).toEqual([{ name: 'mine', message: 'no luck' }]);
  expect(model.dueAt()).toBeGreaterThan(0);
  broken = false;
  await world.plan();
  expect(model.failedSteps()).toEqual([]);
});
