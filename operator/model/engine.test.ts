import { afterEach, expect, it } from '@jest/globals';
import { createStateDB, query, type Table } from '@weir/statedb';
import { namespaceRow, policyRow } from '../kubernetes/rows.ts';
import { createTables } from '../tables.ts';
import { cnp, namespace } from '../testing.ts';
import type { PolicyRow } from '../types.ts';
import { Engine } from './engine.ts';
import { Model } from './model.ts';

const nothing = { identities: [], peerSets: [], resolved: [], slices: [], statuses: [] };

/** An engine on tables of its own. */
class World {
  readonly db = createStateDB({ freeze: true });
  readonly tables = createTables(this.db);
  readonly errors: Error[] = [];
  readonly engine: Engine;

  constructor() {
    const { db, tables } = this;
    this.engine = new Engine({
      db,
      tables,
      model: new Model({ db, tables, cluster: 'default', identityGraceMs: 1_000, now: () => 1_700_000_000_000 }),
      adopted: () => nothing,
      missingKinds: () => new Set(),
      collectIntervalMs: 1_000_000,
      onError: (error) => this.errors.push(error),
    });
    for (const name of ['tenant', 'victim']) this.#put(tables.namespaces, [namespaceRow(namespace(name))]);
  }

  put(...rows: readonly PolicyRow[]): void {
    this.#put(this.tables.policies, rows);
  }

  /** How many policies of the namespace are resolved when that one is: looked at in the commit that brings it. */
  async resolvedBefore(name: string, of: string): Promise<number> {
    const { db, tables } = this;
    const count = (): number => {
      using snapshot = db.read();
      return [...snapshot.all(tables.resolved)].filter(({ row }) => row.source.namespace === of).length;
    };
    const { promise, resolve } = Promise.withResolvers<number>();
    {
      using snapshot = db.read();
      snapshot.watch(query.get(tables.resolved, name)).watch.onFire(() => resolve(count()));
    }
    return await promise;
  }

  #put<T>(table: Table<T>, rows: readonly T[]): void {
    this.db.write([table], (txn) => {
      for (const row of rows) txn.upsert(table, row);
    });
  }
}

const policy = (where: string, app: string, generation = 1): PolicyRow => {
  const object = cnp(where, { endpointSelector: {}, ingress: [{ fromEndpoints: [{ matchLabels: { app } }] }] });
  return policyRow({ ...object, metadata: { ...object.metadata, uid: where, generation } }, 'CiliumNetworkPolicy');
};

let world: World;
afterEach(async () => {
  await world.engine.stop();
  expect(world.errors).toEqual([]);
});

it('a namespace that edits its policies by the thousand does not delay an edit of another by more than a round or two', async () => {
  world = new World();
  world.engine.start();
  await world.engine.calm();
  const resolved = world.resolvedBefore('cnp-victim.p', 'tenant');
  world.put(...Array.from({ length: 3_000 }, (_, n) => policy(`tenant/p${n}`, `a${n}`)));
  world.put(policy('victim/p', 'web'));
  expect(await resolved).toBeLessThanOrEqual(400);
  await world.engine.calm();
  using snapshot = world.db.read();
  expect(snapshot.count(world.tables.resolved)).toBe(3_001);
});

it('of a policy that is edited while it waits the last edit counts, and so does its deletion', async () => {
  world = new World();
  world.engine.start();
  await world.engine.calm();
  world.put(...Array.from({ length: 1_000 }, (_, n) => policy(`tenant/p${n}`, `a${n}`)));
  const first = world.resolvedBefore('cnp-tenant.p0', 'tenant');
  await first;
  world.put(policy('tenant/p999', 'last', 2));
  world.db.write([world.tables.policies], (txn) => txn.delete(world.tables.policies, 'cnp/tenant/p998'));
  await world.engine.calm();
  using snapshot = world.db.read();
  expect(snapshot.count(world.tables.resolved)).toBe(999);
  expect(snapshot.get(world.tables.resolved, 'cnp-tenant.p999')?.row.source.generation).toBe(2);
  expect(snapshot.has(world.tables.resolved, 'cnp-tenant.p998')).toBe(false);
});
