/** Numbers of other nodes: they have some only while rules in use select nodes by labels. */
import { describe, expect, it } from '@jest/globals';
import { NODE_BASE, RESERVED_ID, withApiServer } from '@weir/identity';
import { basic, rule, type World, ZONE } from './testing/model-world.ts';

const [FIRST, SECOND] = [NODE_BASE + 1, NODE_BASE + 2];
const REMOTE = RESERVED_ID['remote-node'];

function node(world: World, name: string, addresses: readonly string[], kubeApiserver = false): void {
  const row = { name, addresses, podCidrs: [], kubeApiserver, labels: { zone: 'b' } };
  world.db.write([world.tables.nodes], (txn) => txn.upsert(world.tables.nodes, row));
}
const at = (world: World, address: string): number | undefined => world.ipcache.get(`${address}/32`)?.identity;
const settle = async (world: World): Promise<void> => {
  while ((await world.plan()).again);
};
/** Endpoint 1 lets nodes of zone b in, or does no more. */
const select = (world: World, nodes: boolean): void => {
  world.zone();
  world.policy('z', nodes ? 1 : 2, [rule('a', nodes ? ZONE : 'b', 7)]);
};

describe('another node', () => {
  it('has a number while rules in use select nodes, and is remote-node otherwise', async () => {
    const world = basic();
    node(world, 'n2', ['192.0.2.2']);
    world.zone();
    await settle(world);
    expect(at(world, '192.0.2.2')).toBe(REMOTE);
    select(world, true);
    await settle(world);
    expect(at(world, '192.0.2.2')).toBe(FIRST);
    node(world, 'n3', ['192.0.2.3']);
    await settle(world);
    expect([at(world, '192.0.2.2'), at(world, '192.0.2.3')]).toEqual([FIRST, SECOND]);
    select(world, false);
    await settle(world);
    // The slot that named the set is gone by then.
    await settle(world);
    expect([at(world, '192.0.2.2'), at(world, '192.0.2.3')]).toEqual([REMOTE, REMOTE]);
  });

  it('has another one at an address of an API server, and none at an address that two nodes say', async () => {
    const world = basic();
    const { db, tables } = world;
    node(world, 'n2', ['192.0.2.2', '192.0.2.9', '192.0.2.5'], true);
    node(world, 'n3', ['192.0.2.3', '192.0.2.9']);
    db.write([tables.apiserverAddresses], (txn) => txn.upsert(tables.apiserverAddresses, { address: '192.0.2.5' }));
    await settle(world);
    expect(['192.0.2.5', '192.0.2.9'].map((address) => at(world, address))).toEqual([7, REMOTE]);
    select(world, true);
    await settle(world);
    expect(at(world, '192.0.2.5')).toBe(withApiServer(at(world, '192.0.2.2') ?? 0));
    expect(at(world, '192.0.2.9')).toBe(0);
    node(world, 'n3', ['192.0.2.3']);
    await settle(world);
    expect(at(world, '192.0.2.9')).toBe(at(world, '192.0.2.2'));
  });
});

describe('at a start, before rules are known', () => {
  async function restarted(adopt: (world: World) => void): Promise<World> {
    const world = basic();
    adopt(world);
    node(world, 'n2', ['192.0.2.2']);
    world.model.adopt({ endpoints: [], slots: new Map(), ipcache: [['192.0.2.2/32', FIRST]] });
    world.ipcache.set('192.0.2.2/32', { prefix: '192.0.2.2/32', identity: FIRST, source: 'remote-node' });
    await world.plan({ rules: false });
    return world;
  }

  it('stays what it was where its number is known, and after', async () => {
    const world = await restarted(({ numbers }) =>
      numbers.adopt({ cidrs: {}, labels: {}, nodes: { n2: FIRST }, revisions: 0 }),
    );
    expect(at(world, '192.0.2.2')).toBe(FIRST);
    select(world, true);
    await settle(world);
    expect(at(world, '192.0.2.2')).toBe(FIRST);
  });

  it('is unknown where nobody knows whose number it was: denies of rules in force may mean it', async () => {
    const world = await restarted(() => undefined);
    expect(at(world, '192.0.2.2')).toBe(0);
    await settle(world);
    expect(at(world, '192.0.2.2')).toBe(REMOTE);
  });
});
