import { describe, expect, it } from '@jest/globals';
import { type LabelMap, type LabelSelector, labelsKey, matches, NAMESPACE_LABEL } from '@weir/labels';
import { createStateDB } from '@weir/statedb';
import fc from 'fast-check';
import { createTables, tableKey } from '../create-tables.ts';
import type { PeerSetRow } from '../tables.ts';
import { Identities } from './identities.ts';
import { Inputs } from './inputs.ts';
import { Pace } from './pace.ts';
import { PeerSetViews } from './peer-set-views.ts';
import { basic, rule, type World } from './testing/model-world.ts';

/** Views of the sets that are named, over tables of their own. */
class Lab {
  readonly db = createStateDB({ freeze: true });
  readonly tables = createTables(this.db);
  readonly inputs = new Inputs(this.db);
  readonly named = new Set<string>();
  /** Identities whose labels were asked for. */
  readonly looked = new Set<number>();
  readonly views: PeerSetViews;

  constructor() {
    const { db, tables, inputs } = this;
    const identities = new Identities({ tables, inputs });
    this.views = new PeerSetViews({
      db,
      tables,
      inputs,
      identities: {
        get: (id) => {
          this.looked.add(id);
          return identities.get(id);
        },
      },
      policies: { view: (hash) => inputs.snapshot.get(tables.peerSets, hash) },
      named: (hash) => this.named.has(hash),
      addressed: () => false,
      pace: new Pace(
        () => 0,
        () => Promise.resolve(),
      ),
    });
    inputs.on(tables.peerSets, ({ hash }) => this.views.setChanged(hash));
    inputs.on(tables.identities, ({ id }) => this.views.identityChanged(id));
  }

  identity(id: number, labels: LabelMap | undefined): void {
    const { identities } = this.tables;
    this.db.write([identities], (txn) => {
      if (labels === undefined) txn.delete(identities, tableKey.identity(id));
      else txn.upsert(identities, { id, labels, labelsKey: labelsKey(labels) });
    });
  }

  set(hash: string, selector: LabelSelector, identities: readonly number[] | undefined): void {
    const { peerSets } = this.tables;
    this.db.write([peerSets], (txn) => {
      if (identities === undefined) txn.delete(peerSets, hash);
      else txn.upsert(peerSets, { hash, selector, identities, origin: 'cluster' });
    });
  }

  name(hash: string, named: boolean): void {
    if (named) this.named.add(hash);
    else this.named.delete(hash);
    this.views.setChanged(hash);
  }

  settle(): ReturnType<PeerSetViews['settle']> {
    while (this.inputs.pull(2));
    return this.views.settle();
  }

  rows(): readonly PeerSetRow[] {
    using snapshot = this.db.read();
    return [...snapshot.all(this.tables.peerSets)];
  }

  /** The definition. */
  members({ selector, identities }: PeerSetRow): number[] {
    using snapshot = this.db.read();
    const known = [...snapshot.all(this.tables.identities)];
    const unknown = identities.filter((id) => !snapshot.has(this.tables.identities, tableKey.identity(id)));
    return [...known.filter(({ labels }) => matches(selector, labels)).map(({ id }) => id), ...unknown].sort(
      (a, b) => a - b,
    );
  }
}

const NAMESPACES = ['n1', 'n2'];
const APPS = ['a', 'b'];
const labels = fc
  .record({ namespace: fc.constantFrom(...NAMESPACES), app: fc.constantFrom(...APPS, undefined), team: fc.boolean() })
  .map(
    ({ namespace, app, team }): LabelMap => ({
      [NAMESPACE_LABEL]: namespace,
      ...(app === undefined ? {} : { 'k8s:app': app }),
      ...(team ? { 'other:team': 'red' } : {}),
    }),
  );
const requirement = fc.constantFrom(
  { key: NAMESPACE_LABEL, operator: 'In' as const, values: ['n1'] },
  { key: NAMESPACE_LABEL, operator: 'In' as const, values: ['n1', 'n2'] },
  { key: 'any:app', operator: 'In' as const, values: ['a'] },
  { key: 'k8s:app', operator: 'In' as const, values: ['a', 'b'] },
  { key: 'k8s:app', operator: 'NotIn' as const, values: ['a'] },
  { key: 'any:team', operator: 'In' as const, values: ['red'] },
  { key: 'any:team', operator: 'DoesNotExist' as const, values: [] },
  { key: 'k8s:app', operator: 'Exists' as const, values: [] },
);
const SELECTORS = fc.sample(fc.array(requirement, { maxLength: 3 }), { numRuns: 12, seed: 7 });
const IDS = [256, 257, 258, 259, 260];

describe('the members of a peer set', () => {
  it('are those that labels and list say, by increments as from scratch', async () => {
    const step = fc.oneof(
      fc.record({ id: fc.constantFrom(...IDS), labels: fc.option(labels, { freq: 3, nil: undefined }) }),
      fc.record({ set: fc.nat(SELECTORS.length - 1), list: fc.option(fc.subarray(IDS), { freq: 4, nil: undefined }) }),
      fc.record({ set: fc.nat(SELECTORS.length - 1), named: fc.boolean() }),
    );
    let someTold = false;
    await fc.assert(
      fc.asyncProperty(fc.array(fc.array(step, { maxLength: 6 }), { maxLength: 12, size: 'max' }), async (rounds) => {
        const lab = new Lab();
        let before = new Map<string, readonly number[]>();
        for (const steps of rounds) {
          for (const each of steps) {
            if ('id' in each) lab.identity(each.id, each.labels);
            else if ('named' in each) lab.name(`s${each.set}`, each.named);
            else lab.set(`s${each.set}`, { requirements: SELECTORS[each.set] ?? [] }, each.list);
          }
          const changed = await lab.settle();
          const after = new Map<string, readonly number[]>();
          for (const row of lab.rows()) {
            const members = lab.views.members(row.hash);
            if (!lab.named.has(row.hash)) expect(members).toBeUndefined();
            else {
              expect(members).toEqual(lab.members(row));
              after.set(row.hash, members ?? []);
              if (JSON.stringify(members) === JSON.stringify(row.identities)) expect(members).toBe(row.identities);
            }
          }
          for (const [hash, members] of after) {
            const had = before.get(hash);
            expect(changed.has(hash)).toBe(JSON.stringify(members) !== JSON.stringify(had));
            const told = changed.get(hash);
            if (told === undefined) continue;
            const apart = new Set(members).symmetricDifference(new Set(had));
            expect([hash, [...apart].filter((id) => !told.has(id))]).toEqual([hash, []]);
            someTold ||= apart.size > 0;
          }
          before = after;
        }
      }),
      { numRuns: 200 },
    );
    expect(someTold).toBe(true);
  });

  it('are told as those who joined or left, unless the set is new or selects by other labels', async () => {
    const lab = new Lab();
    const select = (app: string): LabelSelector => ({
      requirements: [{ key: 'k8s:app', operator: 'In', values: [app] }],
    });
    const told = async () => [...(await lab.settle())].map(([hash, ids]) => [hash, ids && [...ids]]);
    lab.name('s', true);
    lab.set('s', select('a'), []);
    expect(await told()).toEqual([['s', undefined]]);
    lab.identity(256, { 'k8s:app': 'a' });
    lab.identity(257, { 'k8s:app': 'b' });
    expect(await told()).toEqual([['s', [256]]]);
    lab.identity(256, { 'k8s:app': 'b' });
    expect(await told()).toEqual([['s', [256]]]);
    // Members here are equal, and this node's own label sets, which are in no list, may not be.
    lab.set('s', select('c'), []);
    expect(await told()).toEqual([['s', undefined]]);
  });

  it('are looked for among the identities of its namespace only', async () => {
    const lab = new Lab();
    for (const [id, namespace] of [
      [256, 'n1'],
      [257, 'n2'],
      [258, 'n1'],
    ] as const)
      lab.identity(id, { [NAMESPACE_LABEL]: namespace, 'k8s:app': 'a' });
    await lab.settle();
    lab.looked.clear();
    lab.name('s', true);
    lab.set('s', { requirements: [{ key: NAMESPACE_LABEL, operator: 'In', values: ['n1'] }] }, [256]);
    expect([...(await lab.settle())]).toEqual([['s', undefined]]);
    expect([...lab.looked]).toEqual([256, 258]);
    expect(lab.views.members('s')).toEqual([256, 258]);
  });
});

const ADDRESS = '10.9.9.1';

/** Whether endpoint 1 lets the address in. */
function letsIn(world: World, address = ADDRESS): boolean {
  const slot = world.slots.get(world.states.get(1)?.slot ?? 0);
  if (slot === undefined) return true;
  const identity = world.ipcache.get(`${address}/32`)?.identity ?? 0;
  const { classes, scope } = slot.compiled.ingress;
  const rows = classes.find(({ members }) => members.includes(identity))?.rows ?? scope.pod;
  return identity !== 0 && rows.some(({ verdict }) => verdict === 'allow');
}

describe('rules in force', () => {
  /** Generation 1 denies app b and lets everybody else in; generation 2, whose set has not come, would deny more. */
  async function superseded(drop: boolean): Promise<World> {
    const world = basic();
    const { peers: _, ...everybody } = rule('a', undefined, 7);
    const deny = (peer: string) => ({ ...rule('a', peer, 8), verdict: 'deny' as const });
    world.policy('p', 1, [everybody, deny('b')]);
    world.identity(257, 'b');
    world.remote('r', ADDRESS, 500, [], 'u-r');
    world.identity(500, 'x');
    await world.plan();
    expect(letsIn(world)).toBe(true);
    world.policy('p', 2, [everybody, deny('b'), deny('c')]);
    const { db, tables } = world;
    if (drop) db.write([tables.peerSets], (txn) => txn.delete(tables.peerSets, 'hash-b'));
    return world;
  }

  it.each([
    ['lists it no more', false],
    ['has dropped', true],
  ])('hold for a pod that gets a new identity of a set that the cluster %s', async (_, drop) => {
    const world = await superseded(drop);
    world.identity(300, 'b', 'new');
    world.remote('r', ADDRESS, 300, [], 'u-r');
    await world.plan();
    expect(world.states.get(1)?.policies).toEqual({ p: 1 });
    expect([world.ipcache.get(`${ADDRESS}/32`)?.identity, letsIn(world)]).toEqual([300, false]);
  });

  it('hold for a pod of this node that gets a new identity, which the set of their subjects does not list', async () => {
    const world = await superseded(false);
    world.pod('web', 'a', [], 'new');
    world.identity(300, 'a', 'new');
    await world.plan();
    expect(world.states.get(1)).toMatchObject({ identity: 300, policies: { p: 1 } });
  });

  it('hold for a pod of this node whose identity is deleted, until it has another or the number means another', async () => {
    const world = await superseded(false);
    const { db, tables } = world;
    const gone = (): void =>
      void db.write([tables.identities], (txn) => txn.delete(tables.identities, tableKey.identity(300)));
    const here = '10.0.0.2';
    const identity = (): number | undefined => world.ipcache.get(`${here}/32`)?.identity;
    world.identity(300, 'b', 'new');
    world.pod('peer', 'b', [], 'new');
    world.endpoint(2, { pod: { namespace: 'ns', name: 'peer', uid: 'u-peer' } });
    await world.plan();
    gone();
    expect((await world.plan()).again).toBe(false);
    expect([identity(), letsIn(world, here)]).toEqual([300, false]);
    world.identity(300, 'x');
    world.remote('r', ADDRESS, 300, [], 'u-r');
    expect((await world.plan()).again).toBe(true);
    expect([identity(), world.ipcache.get(`${ADDRESS}/32`)?.identity]).toEqual([0, 500]);
    expect((await world.plan()).again).toBe(false);
    expect([world.ipcache.get(`${ADDRESS}/32`)?.identity, letsIn(world)]).toEqual([300, true]);
  });

  it('do not take an identity for a member that is listed by the number of another one', async () => {
    const world = await superseded(false);
    world.peerSet('b', [257, 500]);
    await world.plan();
    expect(letsIn(world)).toBe(true);
  });
});

describe('a policy of which nothing is in force here for want of its sets', () => {
  const waiting = { state: 'waiting-for-identity', enforced: { ingress: true, egress: true } };

  function withPod(world: World): void {
    world.pod('late', 'a');
    world.endpoint(2, { pod: { namespace: 'ns', name: 'late', uid: 'u-late' } });
  }

  it('keeps a new endpoint that it may select closed, says so, and leaves those that were there as they are', async () => {
    const world = basic();
    await world.plan();
    world.policy('p', 1, [rule('a', 'c', 7)]);
    await world.plan();
    withPod(world);
    await world.plan();
    expect(world.states.get(1)).toMatchObject({ state: 'ready', slot: 0 });
    expect(world.states.get(2)).toMatchObject(waiting);
    expect(world.states.get(2)?.reason).toBe(
      'CiliumNetworkPolicy ns/p may select it and is not in force here: PeerSet hash-c has not come from the operator',
    );
    world.peerSet('c', []);
    await world.plan();
    expect(world.states.get(2)).toMatchObject({ state: 'ready', policies: { p: 1 } });
  });

  it('holds up nobody else: not who its subjects leave out, nor other namespaces, nor once it is gone', async () => {
    const world = basic();
    await world.plan();
    const { db, tables } = world;
    world.policy('b', 1, [rule('b', 'c', 7)]);
    db.write([tables.policies], (txn) =>
      txn.upsert(tables.policies, {
        uid: 'q',
        kind: 'CiliumNetworkPolicy',
        namespace: 'other',
        name: 'q',
        generation: 1,
        rules: [rule('c', 'c', 8)],
      }),
    );
    world.policy('gone', 1, [rule('c', 'c', 9)]);
    withPod(world);
    await world.plan();
    expect(world.states.get(2)).toMatchObject(waiting);
    db.write([tables.policies], (txn) => txn.delete(tables.policies, 'gone'));
    await world.plan();
    expect(world.states.get(2)).toMatchObject({ state: 'ready' });
  });

  it('does not close what an agent finds in the kernel', async () => {
    const world = basic();
    const found = { id: 1, ifindex: 101, addresses: ['10.0.0.1'], identity: 256, slot: 0, revision: 3 };
    world.model.adopt({
      endpoints: [{ ...found, enforced: { ingress: false, egress: false } }],
      slots: new Map(),
      ipcache: [],
    });
    world.policy('p', 1, [rule('a', 'c', 7)]);
    await world.plan();
    expect(world.states.get(1)).toMatchObject({ state: 'ready', slot: 0, revision: 3 });
  });
});
