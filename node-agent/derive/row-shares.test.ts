/** What the slots of one namespace's endpoints may come to on a node, together. */
import { describe, expect, it } from '@jest/globals';
import { labelsKey } from '@weir/labels';
import { type CompiledDirection, MOST_ROWS, type ResolvedRule, rowsIn } from '@weir/policy';
import fc from 'fast-check';
import { tableKey } from '../create-tables.ts';
import { compileByShare, NAMESPACE_ROWS, type Needs, NO_NEEDS, shareOf } from './row-shares.ts';
import { basic, podLabels, rule, type World, type WorldOptions } from './testing/model-world.ts';

const UNKNOWN = Infinity;

describe('the share of a direction', () => {
  const needs = fc.array(fc.oneof(fc.nat(200), fc.nat(MOST_ROWS), fc.constant(UNKNOWN)), { maxLength: 300 });

  it('has all directions fit, and no more than twice as much would', () => {
    fc.assert(
      fc.property(needs, (all) => {
        const share = shareOf(all);
        const within = (most: number): number => all.reduce((sum, need) => sum + Math.min(need, most), 0);
        expect(within(share)).toBeLessThanOrEqual(NAMESPACE_ROWS);
        const above = all.filter((need) => need > share).length;
        const below = all.filter((need) => need <= share).reduce((sum, need) => sum + need, 0);
        if (share < MOST_ROWS) expect(below + above * (2 * share + 1)).toBeGreaterThan(NAMESPACE_ROWS);
      }),
    );
  });

  it('is the same for whoever knows of those above it only that they are', () => {
    fc.assert(
      fc.property(needs, (all) => {
        const share = shareOf(all);
        expect(shareOf(all.map((need) => (need > share ? UNKNOWN : need)))).toBe(share);
      }),
    );
  });

  it('is never more for whoever knows less', () => {
    fc.assert(
      fc.property(needs, fc.infiniteStream(fc.boolean()), (all, known) => {
        const fewer = all.map((need) => (known.next().value === true ? need : UNKNOWN));
        expect(shareOf(fewer)).toBeLessThanOrEqual(shareOf(all));
      }),
    );
  });
});

describe('the order of compiling by share', () => {
  /** Each shape needs so many rows in each direction: two fit with all of them, three with half of what one may have at most. */
  const NEED = 40_000;
  const HALF = MOST_ROWS / 2;
  const IN_FORCE: Needs = { rows: [NEED, NEED], most: MOST_ROWS };
  const row = { protocol: 6, from: 1, to: 1, verdict: 'allow', cookie: 1 } as const;
  const excess = { message: '', denied: 1, scopes: [] };

  function directionOf(most: number): CompiledDirection {
    const scope = { unknown: Array.from({ length: Math.min(NEED, most) }, () => row), pod: [], world: [] };
    return { enforced: true, scope, classes: [], ...(NEED > most ? { excess } : {}) };
  }

  /** Compiles shapes of one namespace, all dirty; returns the share that each was compiled with, one after the other, and which wait. */
  async function compiled(
    shapes: Readonly<Record<string, { readonly needs: Needs; readonly waits: boolean }>>,
    work: number,
  ): Promise<{ readonly order: readonly (readonly [string, number])[]; readonly waiting: readonly string[] }> {
    const order: [string, number][] = [];
    const { waiting } = await compileByShare({
      users: new Map(Object.keys(shapes).map((shape) => [shape, new Set(['ns'])])),
      kept: new Map(),
      dirty: new Set(Object.keys(shapes)),
      needs: (shape) => shapes[shape]?.needs ?? NO_NEEDS,
      failing: () => false,
      compile: (shape, most) => {
        order.push([shape, most]);
        return Promise.resolve({ ingress: directionOf(most), egress: directionOf(most) });
      },
      rules: () => 1,
      mayWait: (shape) => shapes[shape]?.waits === true,
      work,
    });
    return { order, waiting: [...waiting] };
  }

  it('what is new counts as needing everything until it is compiled: it begins with what fits in any case', async () => {
    const fresh = { needs: NO_NEEDS, waits: true };
    expect((await compiled({ a: fresh, b: fresh, c: fresh }, Infinity)).order).toEqual([
      ['a', MOST_ROWS],
      ['b', MOST_ROWS],
      ['c', HALF],
      ['a', HALF],
      ['b', HALF],
    ]);
  });

  it('what is in force and waits for its turn counts with what it has, and is not compiled before its turn for having another share', async () => {
    const held = { needs: IN_FORCE, waits: true };
    expect(await compiled({ a: held, b: held, urgent: { needs: NO_NEEDS, waits: false } }, 0)).toEqual({
      order: [
        ['urgent', MOST_ROWS],
        ['urgent', HALF],
        ['a', HALF],
      ],
      waiting: ['b'],
    });
  });
});

/** A twentieth of what nodes have, and policies as much smaller: compiling them takes as much less time. */
const MOST = MOST_ROWS / 20;
const NAMESPACE = NAMESPACE_ROWS / 20;
const MOST_WORK = 800;
const PORTS = 40;

/** Egress rules of app a's pods of one version: so many ports for everybody, and 40 peers with a port of their own beside them. */
function square(version: string, ports: number): ResolvedRule[] {
  const subject = `hash-${version}`;
  const own = (fields: Partial<ResolvedRule>, cookie: number, port: number): ResolvedRule => ({
    ...rule('a', undefined, cookie),
    subject,
    ports: [{ protocol: 'TCP', from: port, to: port }],
    ...fields,
  });
  return [
    ...Array.from({ length: 40 }, (_, at) => own({ peers: [{ peerSet: `hash-p${at}` }] }, 1 + at, 1 + 2 * at)),
    ...Array.from({ length: ports }, (_, at) => own({ peers: [{ entity: 'all' }] }, 100 + at, 1001 + 2 * at)),
  ];
}

/** Endpoint `id` of a pod in the namespace, with a policy for it alone. */
function pod(world: World, id: number, ports: number, namespace = 'ns'): void {
  const [name, version] = [`pod-${id}`, `v${id}`];
  const labels = { ...podLabels('a', version), 'k8s:io.kubernetes.pod.namespace': namespace };
  const { namespaces, identities, localPods } = world.tables;
  world.db.write([namespaces, identities, localPods], (txn) => {
    txn.upsert(namespaces, { name: namespace, labels: {} });
    txn.upsert(identities, { id: 300 + id, labels, labelsKey: labelsKey(labels) });
    const pods = {
      namespace,
      name,
      uid: `u-${name}`,
      labels: { app: 'a', version },
      serviceAccount: '',
      namedPorts: [],
    };
    txn.upsert(localPods, { ...pods, addresses: [`10.0.0.${id}`] });
  });
  set(world, version);
  world.endpoint(id, { pod: { namespace, name } });
  world.policy(`policy-${id}`, 1, square(version, ports));
}

function set(world: World, version: string): void {
  const selector = { requirements: [{ key: 'k8s:version', operator: 'In' as const, values: [version] }] };
  world.db.write([world.tables.peerSets], (txn) =>
    txn.upsert(world.tables.peerSets, { hash: `hash-${version}`, selector, identities: [], origin: 'cluster' }),
  );
}

function peers(options: WorldOptions = {}): World {
  const world = basic({ mostRows: MOST, work: MOST_WORK, ...options });
  for (let at = 0; at < 40; at++) {
    set(world, `p${at}`);
    world.identity(1000 + at, 'c', `p${at}`);
    world.remote(`peer-${at}`, `10.8.0.${at}`, 1000 + at);
  }
  return world;
}

async function settle(world: World): Promise<void> {
  while ((await world.plan()).again);
}

/** Rows of all slots, and the endpoints that lack some. */
function outcome(world: World): { readonly rows: number; readonly limited: readonly number[] } {
  const slots = new Set([...world.states.values()].map(({ slot }) => slot));
  let rows = 0;
  for (const slot of slots) {
    const compiled = world.slots.get(slot)?.compiled;
    if (compiled !== undefined) rows += rowsIn(compiled.ingress) + rowsIn(compiled.egress);
  }
  const limited = [...world.states.keys()].filter((id) => [...world.model.excesses(id)].length > 0);
  return { rows, limited: limited.sort((a, b) => a - b) };
}

function gone(world: World, id: number): void {
  const { endpoints, localPods, policies } = world.tables;
  world.db.write([endpoints, localPods, policies], (txn) => {
    txn.delete(endpoints, tableKey.endpoint(id));
    txn.delete(localPods, tableKey.pod('ns', `pod-${id}`));
    txn.delete(policies, `policy-${id}`);
  });
}

const LARGE = [11, 12, 13, 14, 15, 16, 17, 18, 19];

describe('many policies of one namespace', () => {
  it('stay within what a namespace may have; what is small loses nothing, and the message says why', async () => {
    const world = peers();
    pod(world, 10, 2);
    for (const id of LARGE) pod(world, id, PORTS);
    await settle(world);
    const { rows, limited } = outcome(world);
    expect(limited).toEqual(LARGE);
    expect(rows).toBeLessThanOrEqual(NAMESPACE);
    expect(rows).toBeGreaterThan(NAMESPACE / 4);
    const [[, excess] = []] = world.model.excesses(11);
    expect(excess?.message).toContain('its share of those that its namespace has on a node');
  });

  it('have all their rows again once there is room; each plan changes one share, and all come to what a fresh model does', async () => {
    const grown = peers({ work: 0 });
    const fresh = async (ids: readonly number[]): Promise<World> => {
      const world = peers();
      for (const id of ids) pod(world, id, PORTS);
      await settle(world);
      return world;
    };
    for (const id of LARGE) {
      pod(grown, id, PORTS);
      await settle(grown);
    }
    expect(outcome(grown)).toMatchObject({ limited: LARGE });
    expect(grown.conclusion()).toEqual((await fresh(LARGE)).conclusion());
    const rest = LARGE.slice(0, 4);
    for (const id of LARGE.slice(4)) gone(grown, id);
    // More rows are to come; every policy is compiled.
    expect((await grown.plan()).again).toBe(true);
    expect(rest.filter((id) => grown.model.waits(id))).toEqual([]);
    await settle(grown);
    expect(outcome(grown).limited).toEqual([]);
    expect(grown.conclusion()).toEqual((await fresh(rest)).conclusion());
  });

  it('wait for the next plan with most of what they have to write, and get no more than all may have', async () => {
    const world = peers();
    for (const id of LARGE) pod(world, id, PORTS);
    for (let again = true; again; ) {
      const plan = await world.plan();
      again = plan.again;
      const rows = plan.slots.map(({ compiled }) => rowsIn(compiled.ingress) + rowsIn(compiled.egress));
      expect(rows.length).toBeLessThan(LARGE.length);
      expect(outcome(world).rows).toBeLessThan(2 * NAMESPACE);
    }
    expect(outcome(world)).toMatchObject({ limited: LARGE });
  });

  it('count with what pods keep until their turn: edits without end add no rows', async () => {
    const world = peers();
    for (const id of LARGE) pod(world, id, PORTS);
    await settle(world);
    for (let edit = 1; edit < 8; edit += 1) {
      // One port more for all of them: every shape is another, and most of them wait.
      const everybody = {
        peers: [{ entity: 'all' as const }],
        ports: [{ protocol: 'TCP' as const, from: edit, to: edit }],
      };
      world.policy('common', edit, [{ ...rule('a', undefined, 9), ...everybody }]);
      const { again } = await world.plan();
      expect(again).toBe(true);
      expect(outcome(world).rows).toBeLessThanOrEqual(1.1 * NAMESPACE);
    }
    await settle(world);
    expect(outcome(world).rows).toBeLessThanOrEqual(NAMESPACE);
  });

  it('take nothing from another namespace', async () => {
    const world = peers();
    for (const id of LARGE) pod(world, id, PORTS);
    pod(world, 30, PORTS, 'other');
    await settle(world);
    expect(outcome(world).limited).toEqual(LARGE);
    const { compiled } = world.slots.get(world.states.get(30)?.slot ?? 0) ?? {};
    expect(compiled && rowsIn(compiled.ingress)).toBeGreaterThan(40 * PORTS);
  });
});

describe('where four policies of one namespace have all their rows, and five have not', () => {
  const FULL = 67;
  const FOUR = [11, 12, 13, 14];
  const FIVE = [...FOUR, 15];
  /** No compiler takes it. */
  const BAD: ResolvedRule = { ...rule('a', undefined, 9999), ports: [{ protocol: 'TCP', from: 9, to: 5 }] };

  /** Each plan does all that there is to do. */
  async function pods(ids: readonly number[]): Promise<World> {
    const world = peers({ work: Infinity });
    for (const id of ids) pod(world, id, FULL);
    await settle(world);
    expect(outcome(world).limited).toEqual(ids.length > 4 ? ids : []);
    return world;
  }

  function breakPolicy(world: World, id: number): void {
    world.policy(`policy-${id}`, 2, [{ ...BAD, subject: `hash-v${id}` }]);
  }

  it('an edit of one takes nothing from the others: what it replaces does not count beside it', async () => {
    const world = await pods(FOUR);
    world.policy('policy-14', 2, square('v14', FULL - 1));
    for (let again = true; again; ) {
      ({ again } = await world.plan());
      expect(outcome(world).limited).toEqual([]);
    }
    expect(world.states.get(14)).toMatchObject({ policies: { 'policy-14': 2 } });
  });

  it('what one pod leaves counts for as long as another has it', async () => {
    const world = await pods(FOUR);
    const { peerSets, policies } = world.tables;
    const either = { requirements: [{ key: 'k8s:version', operator: 'In' as const, values: ['v14', 'v15'] }] };
    pod(world, 15, 0);
    world.db.write([peerSets, policies], (txn) => {
      txn.upsert(peerSets, { hash: 'hash-v14', selector: either, identities: [], origin: 'cluster' });
      txn.delete(policies, 'policy-15');
    });
    await settle(world);
    expect(world.states.get(15)?.slot).toBe(world.states.get(14)?.slot);
    expect(outcome(world).limited).toEqual([]);
    world.policy('policy-15', 1, square('v15', 1));
    await settle(world);
    expect(outcome(world).limited).toEqual(FIVE);
    expect(outcome(world).rows).toBeLessThanOrEqual(NAMESPACE);
  });

  it.each(['with', 'before'])(
    'rows that a pod keeps count, where its policy ceases to compile %s the fifth',
    async (when) => {
      const world = await pods(FOUR);
      breakPolicy(world, 14);
      if (when === 'before') await settle(world);
      pod(world, 15, FULL);
      await settle(world);
      expect(world.states.get(14)).toMatchObject({ state: 'ready', policies: { 'policy-14': 1 } });
      expect(outcome(world).limited).toEqual(FIVE);
      expect(outcome(world).rows).toBeLessThanOrEqual(NAMESPACE);
    },
  );

  it('rows of a pod that another follows, and may not keep them, do not count: the others have them', async () => {
    const world = await pods(FIVE);
    world.endpoint(15, { ifindex: 215, pod: { namespace: 'ns', name: 'pod-15' } });
    breakPolicy(world, 15);
    await settle(world);
    expect(world.states.get(15)).toMatchObject({ state: 'not-ready', policies: {} });
    expect(outcome(world).limited).toEqual([]);
  });
});
