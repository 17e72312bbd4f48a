import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { createStateDB, query, type Table } from '@weir/statedb';
import { namespaceRow, nodeRow, podRow, policyRow } from '../kubernetes/rows.ts';
import { NO_LIMITS, type PolicyLimits } from '../limits.ts';
import { createTables } from '../tables.ts';
import { cnp, namespace, node, pod } from '../testing.ts';
import type { PodRow, PolicyRow } from '../types.ts';
import { Model } from './model.ts';
import { SyncLoop } from './sync-loop.ts';
import { machineStopwatch, SHARE_MS, type Stopwatch } from './time-share.ts';

const nothing = { identities: [], peerSets: [], resolved: [], slices: [], statuses: [] };

/** A sync loop on tables of its own. */
class World {
  readonly db = createStateDB({ freeze: true });
  readonly tables = createTables(this.db);
  readonly errors: Error[] = [];
  readonly syncLoop: SyncLoop;

  constructor(
    stopwatch: Stopwatch = machineStopwatch,
    policyLimits: PolicyLimits = NO_LIMITS,
    identitiesPerNamespace = 0,
  ) {
    const { db, tables } = this;
    this.syncLoop = new SyncLoop({
      db,
      tables,
      model: new Model({
        db,
        tables,
        cluster: 'default',
        identityGraceMs: 1_000,
        now: () => 1_700_000_000_000,
        policyLimits,
        identitiesPerNamespace,
        stopwatch,
      }),
      adopted: () => nothing,
      missingKinds: () => new Set(),
      collectIntervalMs: 1_000_000,
      onError: (error) => this.errors.push(error),
      stopwatch,
    });
    for (const name of ['tenant', 'victim', 'other']) this.label(name, {});
    this.#put(tables.nodes, [nodeRow(node('n1'))]);
  }

  label(name: string, labels: Record<string, string>): void {
    this.#put(this.tables.namespaces, [namespaceRow(namespace(name, labels))]);
  }

  putPods(...rows: readonly PodRow[]): void {
    this.#put(this.tables.pods, rows);
  }

  put(...rows: readonly PolicyRow[]): void {
    this.#put(this.tables.policies, rows);
  }

  /** The node tells another state, `edit`, of itself. */
  report(name: string, edit: number): void {
    this.#put(this.tables.nodes, [nodeRow(node(name, 'True', { podCIDRs: [`10.0.${edit % 256}.0/24`] }))]);
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

  /** A table's. */
  of(name: string): { readonly rows: number; readonly revision: number } {
    const info = this.db.tables().find((table) => table.name === name);
    if (info === undefined) throw new Error(`there is no table ${name}`);
    return info;
  }

  /** Pods of a namespace that slices name, by their identities' labels. */
  placed(of: string): { readonly identity: number; readonly labels: Readonly<Record<string, string>> }[] {
    using snapshot = this.db.read();
    return [...snapshot.all(this.tables.slices)]
      .filter(({ row }) => row.namespace === of)
      .flatMap(({ row }) => row.endpoints)
      .map(({ identity }) => ({
        identity,
        labels: snapshot.get(this.tables.identities, String(identity))?.row.labels ?? {},
      }));
  }

  /** What `count` says in the commit that brings the first pod of the namespace. */
  async atFirstPodOf(of: string, count: () => number): Promise<number> {
    const { promise, resolve } = Promise.withResolvers<number>();
    {
      using snapshot = this.db.read();
      snapshot.watch(query.get(this.tables.slices, `ces-${of}-0`)).watch.onFire(() => resolve(count()));
    }
    return await promise;
  }

  async statusOf(policy: string): Promise<void> {
    await this.db.waitFor(query.get(this.tables.statuses, policy), (rows) => rows.length > 0);
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

/** A policy of as many selectors that ask every pod of the namespace. */
const wide = (where: string, count: number, generation = 1): PolicyRow => {
  const none = (n: number): object => ({
    matchExpressions: [{ key: 'app', operator: 'NotIn', values: [`none${generation}-${n}`] }],
  });
  const fromEndpoints = Array.from({ length: count }, (_, n) => none(n));
  const object = cnp(where, { endpointSelector: {}, ingress: [{ fromEndpoints }] });
  return policyRow({ ...object, metadata: { ...object.metadata, uid: where, generation } }, 'CiliumNetworkPolicy');
};

const app = (namespace: string, n: number): PodRow =>
  podRow(pod(`${namespace}/p${n}`, { app: `a${n}` }, { ip: `10.0.${namespace.charCodeAt(0)}.${n}`, node: 'n1' }));

let world: World;
afterEach(async () => {
  await world.syncLoop.stop();
  expect(world.errors).toEqual([]);
});

it('a namespace that edits its policies by the thousand does not delay an edit of another by more than a round or two', async () => {
  world = new World();
  world.syncLoop.start();
  await world.syncLoop.calm();
  const resolved = world.resolvedBefore('cnp-victim.p', 'tenant');
  world.put(...Array.from({ length: 1_000 }, (_, n) => policy(`tenant/p${n}`, `a${n}`)));
  world.put(policy('victim/p', 'web'));
  expect(await resolved).toBeLessThanOrEqual(400);
  await world.syncLoop.calm();
  using snapshot = world.db.read();
  expect(snapshot.count(world.tables.resolved)).toBe(1_001);
});

it('starts while a policy and a node are edited without end, with all that was there, and takes their edits in afterwards', async () => {
  // Each change has a round of its own.
  let passed = 0;
  world = new World(() => (passed += SHARE_MS));
  world.put(policy('other/p', 'web'), policy('tenant/p', 'a0'));
  world.syncLoop.start();
  let edits = 0;
  while (world.of('desiredResolvedPolicies').rows < 2 && edits < 1_000) {
    edits += 1;
    world.put(policy('tenant/p', `a${edits}`, 1 + edits));
    world.report('n1', edits);
    await new Promise((resolve) => setImmediate(resolve));
  }
  expect(edits).toBeLessThan(100);
  expect(world.syncLoop.started).toBe(true);
  {
    using snapshot = world.db.read();
    expect(Array.from(snapshot.all(world.tables.resolved), ({ row }) => row.name)).toEqual([
      'cnp-other.p',
      'cnp-tenant.p',
    ]);
  }
  await world.syncLoop.calm();
  using snapshot = world.db.read();
  expect(snapshot.get(world.tables.resolved, 'cnp-tenant.p')?.row.source.generation).toBe(1 + edits);
});

describe('a policy whose selectors take long to evaluate', () => {
  beforeEach(async () => {
    // Each piece of work takes all the time of a round: a selector, and of a selector 64 identities.
    let passed = 0;
    world = new World(() => (passed += SHARE_MS));
    world.putPods(...[0, 1, 2].map((n) => app('tenant', n)));
    world.syncLoop.start();
    await world.syncLoop.calm();
  });

  it('lets other policies have their turn, its own namespace too, and knows the pods of meanwhile', async () => {
    const ofVictim = world.resolvedBefore('cnp-victim.p', 'tenant');
    world.put(wide('tenant/wide', 50), policy('victim/p', 'web'));
    expect(await ofVictim).toBe(0);
    world.putPods(app('tenant', 3));
    world.db.write([world.tables.pods], (txn) => txn.delete(world.tables.pods, 'tenant/p0'));
    await world.syncLoop.calm();
    using snapshot = world.db.read();
    expect(snapshot.has(world.tables.resolved, 'cnp-tenant.wide')).toBe(true);
    const sizes = Array.from(snapshot.all(world.tables.peerSets), ({ row }) => row.identities.length);
    expect(sizes.filter((size) => size === 4)).toHaveLength(51);
  });

  it('is waited for by no other policy, not even of its namespace', async () => {
    const before = (): number => world.of('selectors').rows;
    world.put(wide('tenant/wide', 200));
    while (before() < 200) await new Promise((resolve) => setImmediate(resolve));
    world.put(policy('tenant/p', 'web'));
    const { tables, db } = world;
    await db.waitFor(query.get(tables.resolved, 'cnp-tenant.p'), (rows) => rows.length > 0);
    using snapshot = db.read();
    expect(snapshot.has(tables.resolved, 'cnp-tenant.wide')).toBe(false);
  });

  it('is written once all of its sets are, and its earlier generation stays until then', async () => {
    const generation = (): number | undefined => {
      using snapshot = world.db.read();
      const { resolved, peerSets } = world.tables;
      const row = snapshot.get(resolved, 'cnp-tenant.wide')?.row;
      if (row?.source.generation === 2) expect(snapshot.count(peerSets)).toBe(21);
      return row?.source.generation;
    };
    world.put(wide('tenant/wide', 1));
    await world.syncLoop.calm();
    world.put(wide('tenant/wide', 20, 2));
    const seen: (number | undefined)[] = [];
    while (seen.at(-1) !== 2) {
      seen.push(generation());
      await new Promise((resolve) => setImmediate(resolve));
    }
    expect(seen.length).toBeGreaterThan(20);
    expect(new Set(seen)).toEqual(new Set([1, 2]));
  });

  it('that goes, or changes meanwhile, leaves nothing behind', async () => {
    for (let generation = 1; generation <= 20; generation += 1) {
      world.put(wide('tenant/wide', 20, generation));
      for (let rounds = 0; rounds < 15; rounds += 1) await new Promise((resolve) => setImmediate(resolve));
      expect(world.of('selectors').rows).toBeLessThanOrEqual(21);
    }
    await world.syncLoop.calm();
    {
      using snapshot = world.db.read();
      expect(snapshot.get(world.tables.resolved, 'cnp-tenant.wide')?.row.source.generation).toBe(20);
    }
    expect(world.of('cookies').rows).toBe(1);
    world.put(wide('tenant/wide', 20, 21));
    for (let rounds = 0; rounds < 15; rounds += 1) await new Promise((resolve) => setImmediate(resolve));
    world.db.write([world.tables.policies], (txn) => txn.delete(world.tables.policies, 'cnp/tenant/wide'));
    await world.syncLoop.calm();
    for (const name of ['selectors', 'setMembers', 'desiredPeerSets', 'desiredResolvedPolicies', 'work'])
      expect(world.of(name).rows).toBe(0);
  });
});

it('a namespace with its policies and identities at their limits delays a policy, its status, and a pod of another by a few turns', async () => {
  let passed = 0;
  world = new World(() => (passed += SHARE_MS), { ...NO_LIMITS, policiesPerNamespace: 60, selectorsPerPolicy: 30 }, 40);
  world.syncLoop.start();
  await world.syncLoop.calm();
  world.put(...Array.from({ length: 30 }, (_, n) => wide(`tenant/w${n}`, 29)));
  world.putPods(...Array.from({ length: 80 }, (_, n) => app('tenant', n)));
  for (let rounds = 0; rounds < 200; rounds += 1) await new Promise((resolve) => setImmediate(resolve));
  expect(world.of('work').rows).toBeGreaterThan(10);
  const before = world.of('workOwners').revision;
  const victims = [
    world.resolvedBefore('cnp-victim.p', ''),
    world.atFirstPodOf('victim', () => 0),
    world.statusOf('cnp/victim/p'),
  ];
  world.put(policy('victim/p', 'web'));
  world.putPods(app('victim', 0));
  await Promise.all(victims);
  // A turn is two revisions. Four lines of the tenant, and four of the victim: a few turns of each.
  expect(world.of('workOwners').revision - before).toBeLessThan(60);
  await world.syncLoop.calm();
  using snapshot = world.db.read();
  expect(snapshot.count(world.tables.resolved)).toBe(21);
  expect(world.placed('tenant')).toHaveLength(40);
});

it('of a policy that is edited while it waits the last edit counts, and so does its deletion', async () => {
  world = new World();
  world.syncLoop.start();
  await world.syncLoop.calm();
  world.put(...Array.from({ length: 1_000 }, (_, n) => policy(`tenant/p${n}`, `a${n}`)));
  const first = world.resolvedBefore('cnp-tenant.p0', 'tenant');
  await first;
  world.put(policy('tenant/p999', 'last', 2));
  world.db.write([world.tables.policies], (txn) => txn.delete(world.tables.policies, 'cnp/tenant/p998'));
  await world.syncLoop.calm();
  using snapshot = world.db.read();
  expect(snapshot.count(world.tables.resolved)).toBe(999);
  expect(snapshot.get(world.tables.resolved, 'cnp-tenant.p999')?.row.source.generation).toBe(2);
  expect(snapshot.has(world.tables.resolved, 'cnp-tenant.p998')).toBe(false);
});

describe('pods', () => {
  const MANY = 150;
  const podOf = (where: string, n: number, app = `a${n}`): PodRow =>
    podRow(pod(`${where}/p${n}`, { app }, { ip: `10.${where.charCodeAt(0)}.${n >> 8}.${n & 255}`, node: 'n1' }));
  const podsOf = (where: string): PodRow[] => Array.from({ length: MANY }, (_, n) => podOf(where, n));
  const withTeam = (where: string, team: string): number =>
    world.placed(where).filter(({ labels }) => Object.values(labels).includes(team)).length;

  beforeEach(async () => {
    // Each change has a round of its own.
    let passed = 0;
    world = new World(() => (passed += SHARE_MS));
    world.syncLoop.start();
    await world.syncLoop.calm();
  });

  it('of a namespace that brings very many do not delay a pod of another by more than a few of them', async () => {
    const before = world.atFirstPodOf('victim', () => world.placed('tenant').length);
    world.putPods(...podsOf('tenant'), podOf('victim', 0));
    expect(await before).toBeLessThanOrEqual(3);
    await world.syncLoop.calm();
    expect(world.placed('tenant')).toHaveLength(MANY);
  });

  it('of a namespace whose labels change do not delay a pod of another, nor the pods of another such namespace', async () => {
    world.putPods(...podsOf('tenant'), ...podsOf('other'));
    await world.syncLoop.calm();
    const before = world.atFirstPodOf('victim', () => withTeam('tenant', 'red'));
    world.label('tenant', { team: 'red' });
    world.label('other', { team: 'blue' });
    world.putPods(podOf('victim', 0));
    expect(await before).toBeLessThanOrEqual(3);
    const meanwhile: number[] = [];
    while (withTeam('tenant', 'red') < MANY) {
      meanwhile.push(withTeam('tenant', 'red') - withTeam('other', 'blue'));
      await new Promise((resolve) => setImmediate(resolve));
    }
    expect(Math.max(...meanwhile.map(Math.abs))).toBeLessThanOrEqual(3);
    await world.syncLoop.calm();
    expect(withTeam('other', 'blue')).toBe(MANY);
  });

  it('have the labels of their namespace in the end, however often those and they change meanwhile', async () => {
    world.putPods(...podsOf('tenant'));
    await world.syncLoop.calm();
    for (const team of ['red', 'green', 'blue']) {
      world.label('tenant', { team });
      for (let rounds = 0; rounds < MANY / 3; rounds += 1) await new Promise((resolve) => setImmediate(resolve));
      world.putPods(podOf('tenant', 0, team), podOf('tenant', MANY - 1, team));
    }
    await world.syncLoop.calm();
    expect(withTeam('tenant', 'blue')).toBe(MANY);
    expect(world.placed('tenant').filter(({ labels }) => labels['k8s:app'] === 'blue')).toHaveLength(2);
  });
});
