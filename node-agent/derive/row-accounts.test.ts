/** How many rows the slots of a node may have, by namespace and in all. */
import { isDeepStrictEqual } from 'node:util';
import { describe, expect, it } from '@jest/globals';
import { labelsKey, podIdentityLabels } from '@weir/labels';
import { type CompiledPolicy, compile, type ResolvedRule } from '@weir/policy';
import fc from 'fast-check';
import { RowShareError } from '../errors.ts';
import type { KernelEndpoint, SlotRow } from '../tables.ts';
import { rowsByClass } from './classes.ts';
import { OWN_ROWS, type RowLimits } from './row-limits.ts';
import { blocksKey, blocksOf, DIRECTIONS, rowsKey } from './rows.ts';
import type { KernelSlot } from './slot-rows.ts';
import { copy, World } from './testing/engine-world.ts';

/** As the compiler counts: each class once at least. */
function rowsIn(compiled: CompiledPolicy): number {
  let sum = 0;
  for (const { enforced, scope, classes } of DIRECTIONS.map((direction) => compiled[direction])) {
    const all = [scope.unknown, scope.pod, scope.world, ...classes.map(({ rows }) => rows)];
    if (enforced) for (const rows of all) sum += Math.max(1, blocksOf(rows).length);
  }
  return sum;
}

/** So many ports for everybody. */
function allow(subject: string, count: number, from = 1): ResolvedRule {
  const ports = Array.from({ length: count }, (_, at) => {
    return { protocol: 'TCP' as const, from: from + 2 * at, to: from + 2 * at };
  });
  return {
    subject,
    direction: 'ingress',
    verdict: 'allow',
    defaultDeny: true,
    cookie: 7,
    path: 'spec.ingress[0]',
    ports,
  };
}

function rowsOf(rules: readonly ResolvedRule[]): number {
  return rowsIn(compile({ rules, peerSets: { identities: () => undefined }, identities: [], mode: 'default' }));
}

/** Rows of a policy of so many ports. */
function rowsFor(count: number): number {
  return rowsOf([allow('s', count)]);
}

/** Pods of several namespaces, each selected by a policy of its own. */
class Node extends World {
  readonly #limits: RowLimits;
  #identity = 1000;

  constructor(limits: RowLimits) {
    super('default', false, 'self', limits);
    this.#limits = limits;
  }

  labels(namespace: string, app: string): Record<string, string> {
    const of = { namespace, namespaceLabels: {}, serviceAccount: '', cluster: 'default' };
    return { ...podIdentityLabels({ ...of, podLabels: { app } }) };
  }

  /** A pod, its endpoint, its identity, and the set that a policy selects it by. */
  add(id: number, namespace: string, app = `a${id}`): void {
    const { db, tables } = this;
    const labels = this.labels(namespace, app);
    const key = labelsKey(labels);
    db.write(Object.values(tables), (txn) => {
      txn.upsert(tables.namespaces, { name: namespace, labels: {} });
      const pod = { namespace, name: `p${id}`, uid: `u${id}`, labels: { app } };
      txn.upsert(tables.localPods, { ...pod, serviceAccount: '', namedPorts: [], addresses: [] });
      const [known] = txn.list(tables.identities, 'labels', key);
      if (known === undefined) txn.upsert(tables.identities, { id: this.#identity++, labels, labelsKey: key });
      const requirements = Object.entries(labels).map(([label, value]) => {
        return { key: label, operator: 'In' as const, values: [value] };
      });
      const set = { selector: { requirements }, identities: [], origin: 'cluster' as const };
      txn.upsert(tables.peerSets, { hash: `${namespace}/${app}`, ...set });
      const everybody = { requirements: requirements.filter((one) => one.key === 'k8s:app') };
      txn.upsert(tables.peerSets, { ...set, hash: app, selector: everybody });
    });
    this.endpoint(id, { pod: { namespace, name: `p${id}`, uid: `u${id}` } });
  }

  /** Of one namespace's pods of the app, or of every namespace's. */
  allow(subject: string, count: number, generation = 1, from = 1): void {
    this.policy(subject, generation, [allow(subject, count, from)]);
  }

  forbid(uid: string): void {
    this.db.write([this.tables.policies], (txn) => txn.delete(this.tables.policies, uid));
  }

  async settle(): Promise<number> {
    for (let plans = 1; ; plans += 1) if (!(await this.plan()).again) return plans;
  }

  rows(id: number): number {
    const slot = this.slots.get(this.states.get(id)?.slot ?? 0);
    return slot === undefined ? 0 : rowsIn(slot.compiled);
  }

  failure(id: number): string | undefined {
    return this.engine.failure(id)?.message;
  }

  /** Recomputed from what endpoints have: rows of each namespace, and of the node. */
  recomputed(): { readonly node: number; readonly namespaces: ReadonlyMap<string, number> } {
    const [all, by] = [new Set<number>(), new Map<string, Set<number>>()];
    for (const { id, slot, state } of this.states.values()) {
      if (slot === 0 || state === 'not-ready') continue;
      all.add(slot);
      const namespace = this.engine.info(id)?.row.pod?.namespace ?? '';
      by.set(namespace, (by.get(namespace) ?? new Set()).add(slot));
    }
    const sum = (slots: ReadonlySet<number>): number => {
      let rows = 0;
      for (const slot of slots) rows += rowsIn((this.slots.get(slot) as SlotRow).compiled);
      return rows;
    };
    return { node: sum(all), namespaces: new Map([...by].map(([namespace, slots]) => [namespace, sum(slots)])) };
  }

  /** What an agent that starts now finds in the kernel. */
  restarted(limits = this.#limits): Node {
    const next = new Node(limits);
    copy(this, next);
    const slots = new Map(Array.from(this.slots.values(), (slot) => [slot.slot, found(slot)]));
    const endpoints = Array.from(this.states.values(), ({ id, ifindex, ipv4, identity, slot, revision, enforced }) => {
      return { id, ifindex, ipv4, identity, slot, revision, enforced } satisfies KernelEndpoint;
    });
    const ipcache = Array.from(this.ipcache.values(), ({ prefix, identity }) => [prefix, identity] as const);
    next.engine.adopt({ endpoints, slots, ipcache, interrupted: false });
    for (const [number, slot] of this.slots) next.slots.set(number, slot);
    for (const [id, state] of this.states) next.states.set(id, state);
    return next;
  }
}

function found(slot: SlotRow): KernelSlot {
  const scope = (direction: 'ingress' | 'egress') => {
    const { unknown, pod, world } = slot.compiled[direction].scope;
    return [rowsKey(unknown), rowsKey(pod), rowsKey(world)] as const;
  };
  const rows = (direction: 'ingress' | 'egress') =>
    new Map(
      [...rowsByClass(slot, direction)]
        .filter(([number]) => number >= 16)
        .map(([number, all]) => [number, blocksKey(blocksOf(all))]),
    );
  return {
    scope: { ingress: scope('ingress'), egress: scope('egress') },
    classes: slot.classes,
    rows: { ingress: rows('ingress'), egress: rows('egress') },
  };
}

/** Room for two of 60 ports, or four of 25, or one of 130. */
const ENOUGH = 800;

describe('rows of a namespace', () => {
  it('are limited: who is beyond keeps what it has, or is closed, by name, number and limit; others are not touched', async () => {
    const node = new Node({ perNode: 0, perNamespace: ENOUGH });
    node.add(1, 'hostile');
    node.add(2, 'hostile');
    node.add(3, 'innocent');
    for (const subject of ['hostile/a1', 'hostile/a2', 'innocent/a3']) node.allow(subject, 40);
    await node.settle();
    expect([1, 2, 3].map((id) => node.rows(id))).toEqual(Array(3).fill(rowsFor(40)));
    node.allow('hostile/a2', 100, 2);
    node.allow('innocent/a3', 100, 2);
    node.add(4, 'hostile');
    node.allow('hostile/a4', 60);
    await node.settle();
    expect(node.states.get(3)).toMatchObject({ state: 'ready', policies: { 'innocent/a3': 2 } });
    expect(node.states.get(2)).toMatchObject({ state: 'ready', policies: { 'hostile/a2': 1 } });
    expect(node.states.get(4)).toMatchObject({ state: 'not-ready', enforced: { ingress: true, egress: true } });
    expect(node.engine.failure(2)).toMatchObject({ code: 'RowBudgetExceeded', namespace: 'hostile' });
    expect(node.failure(2)).toMatch(
      /^the pods of namespace "hostile" have 256 of the 800 rows \(ports of each class of peers\) that a namespace may have on a node: this policy needs \d+ or more; .*--rows-per-namespace \(value agent\.limits\.rowsPerNamespace\)$/,
    );
    expect(node.engine.rowUse()).toMatchObject({ largest: { namespace: 'innocent', rows: rowsFor(100) }, heldBack: 2 });
  });

  it('are free when an endpoint goes, and then who was held back is tried, and nobody before', async () => {
    const node = new Node({ perNode: 0, perNamespace: ENOUGH });
    for (const id of [1, 2, 3]) {
      node.add(id, 'one');
      node.allow(`one/a${id}`, 60);
    }
    node.add(9, 'other');
    node.allow('other/a9', 3);
    await node.settle();
    const open = (): number[] => [1, 2, 3].filter((id) => node.states.get(id)?.state === 'ready');
    expect(open()).toHaveLength(2);
    const [held] = [1, 2, 3].filter((id) => !open().includes(id));
    const before = node.engine.failure(held ?? 0);
    node.dropEndpoint(9);
    await node.settle();
    expect(node.engine.failure(held ?? 0)).toBe(before);
    node.dropEndpoint(open()[0] ?? 0);
    await node.settle();
    expect(open()).toHaveLength(2);
    expect(open()).toContain(held);
    expect(node.engine.rowUse()).toEqual({
      ...{ rows: 2 * rowsFor(60), limits: { perNode: 0, perNamespace: ENOUGH }, heldBack: 0 },
      largest: { namespace: 'one', rows: 2 * rowsFor(60) },
    });
  });

  it('are free when an edit makes a policy smaller, and count once for pods of the same rules', async () => {
    const node = new Node({ perNode: 0, perNamespace: ENOUGH });
    for (let id = 1; id <= 8; id += 1) node.add(id, 'one', 'same');
    node.allow('one/same', 120);
    node.add(9, 'one');
    node.allow('one/a9', 90);
    await node.settle();
    expect([node.states.get(8)?.state, node.states.get(9)?.state]).toEqual(['ready', 'not-ready']);
    node.allow('one/same', 10, 2);
    await node.settle();
    expect(node.states.get(9)?.state).toBe('ready');
  });

  it('each namespace is refused one new slot a plan, however many pods it brings', async () => {
    const node = new Node({ perNode: 0, perNamespace: ENOUGH });
    const many = Array.from({ length: 20 }, (_, at) => 1 + at);
    for (const id of many) {
      node.add(id, 'hostile');
      node.allow(`hostile/a${id}`, 200);
    }
    node.add(30, 'innocent');
    node.allow('innocent/a30', 50);
    const tried = (): number => new Set(many.map((id) => node.engine.failure(id))).size;
    await node.plan();
    expect(node.states.get(30)).toMatchObject({ state: 'ready', policies: { 'innocent/a30': 1 } });
    expect(tried()).toBe(1);
    await node.plan();
    expect(tried()).toBe(2);
    expect(await node.settle()).toBeLessThan(25);
    expect(tried()).toBe(20);
    // Whatever fits among them is found.
    const fits = new Node({ perNode: 0, perNamespace: ENOUGH });
    for (const id of many) {
      fits.add(id, 'one');
      fits.allow(`one/a${id}`, id === 13 ? 20 : 200);
    }
    await fits.settle();
    expect(many.filter((id) => fits.states.get(id)?.state === 'ready')).toEqual([13]);
  });

  it('those that were refused are not all tried again when peers change: one a plan, and no plan for that alone', async () => {
    const node = new Node({ perNode: 0, perNamespace: ENOUGH });
    const many = [1, 2, 3, 4, 5, 6];
    const toCidr = (at: number): ResolvedRule => ({ ...allow('x', 200), peers: [{ cidr: `198.18.${at}.0/24` }] });
    for (const id of many) {
      node.add(id, 'hostile');
      node.policy(`h${id}`, 1, [{ ...toCidr(id), subject: `hostile/a${id}` }]);
    }
    node.add(30, 'innocent');
    await node.settle();
    const errors = (): (Error | undefined)[] => many.map((id) => node.engine.failure(id));
    for (let edit = 1; edit <= 3; edit += 1) {
      const before = errors();
      node.policy('i', edit, [{ ...toCidr(100 + edit), subject: 'innocent/a30', ports: [] }]);
      await node.plan();
      expect(node.states.get(30)?.policies).toEqual({ i: edit });
      await node.settle();
      // A plan for the edit, and others for the number of the CIDR before.
      expect(errors().filter((error, at) => error !== before[at]).length).toBeLessThanOrEqual(3);
    }
  });

  it('a slot that several namespaces share is there for all if one of them may have it', async () => {
    const node = new Node({ perNode: 0, perNamespace: ENOUGH });
    node.add(1, 'hostile');
    node.allow('hostile/a1', 125);
    node.add(2, 'hostile', 'web');
    await node.settle();
    node.allow('web', 100);
    await node.settle();
    expect(node.failure(2)).toContain('namespace "hostile"');
    node.add(3, 'innocent', 'web');
    await node.settle();
    expect([2, 3].map((id) => node.states.get(id)?.policies)).toEqual([{ web: 1 }, { web: 1 }]);
    expect(node.states.get(2)?.slot).toBe(node.states.get(3)?.slot);
    // What stays is refused to nobody.
    node.dropEndpoint(3);
    await node.settle();
    expect(node.states.get(2)?.policies).toEqual({ web: 1 });
    expect(node.engine.rowUse()).toMatchObject({ rows: rowsFor(125) + rowsFor(100) });
  });
});

describe('rows of the node', () => {
  it('are limited, but for what is each namespace’s own', async () => {
    const node = new Node({ perNode: 8000, perNamespace: 8000 });
    node.add(1, 'one');
    node.allow('one/a1', 1000);
    node.add(2, 'two');
    node.allow('two/a2', 130);
    node.add(3, 'three');
    node.allow('three/a3', 900);
    await node.settle();
    const ready = [1, 2, 3].filter((id) => node.states.get(id)?.state === 'ready');
    expect(ready).toEqual([1, 2]);
    expect(node.failure(3)).toContain(
      `have ${node.engine.rowUse().rows} of 8000 rows (ports of each class of peers), and the pods of namespace "three" may have ${OWN_ROWS} beyond that, of which 0 are used`,
    );
    expect(node.failure(3)).toContain('--rows-per-node (value agent.limits.rowsPerNode)');
    // What is its own is had by who comes last, and no more.
    node.add(4, 'four');
    node.allow('four/a4', 500);
    await node.settle();
    expect(node.states.get(4)?.state).toBe('ready');
    expect(node.engine.rowUse().rows).toBeGreaterThan(8000);
    node.add(5, 'four');
    node.allow('four/a5', 500);
    await node.settle();
    expect(node.failure(5)).toContain(`beyond that, of which ${rowsFor(500)} are used`);
    node.dropEndpoint(1);
    await node.settle();
    expect([3, 5].map((id) => node.states.get(id)?.state)).toContain('ready');
  });
});

describe('what is in force', () => {
  it('stays after a restart, whoever is compiled first, and under smaller limits', async () => {
    const node = new Node({ perNode: 0, perNamespace: ENOUGH });
    for (const id of [1, 2, 3, 4]) {
      node.add(id, 'one');
      node.allow(`one/a${id}`, 60);
    }
    await node.settle();
    const ready = [1, 2, 3, 4].filter((id) => node.states.get(id)?.state === 'ready');
    expect(ready).toHaveLength(2);
    for (const limits of [
      { perNode: 0, perNamespace: ENOUGH },
      { perNode: 10, perNamespace: 10 },
    ]) {
      const next = node.restarted(limits);
      await next.settle();
      expect([1, 2, 3, 4].filter((id) => next.engine.failure(id) === undefined)).toEqual(ready);
      for (const id of ready) expect(next.states.get(id)?.slot).toBe(node.states.get(id)?.slot);
      expect(next.engine.rowUse().rows).toBeGreaterThanOrEqual(2 * rowsFor(60));
    }
  });
});

it('whatever comes and goes: no namespace has more than its share, the node no more than all may, and what is counted is what is there', async () => {
  const limits = { perNode: OWN_ROWS + 300, perNamespace: OWN_ROWS + 200 };
  const seen = { refused: 0, admitted: 0 };
  const namespaces = ['a', 'b', 'c'];
  const step = fc.oneof(
    fc.record({ what: fc.constant('come' as const), id: fc.integer({ min: 1, max: 12 }) }),
    fc.record({ what: fc.constant('go' as const), id: fc.integer({ min: 1, max: 12 }) }),
    fc.record({
      what: fc.constant('edit' as const),
      id: fc.integer({ min: 1, max: 12 }),
      count: fc.constantFrom(1, 30, 150, 400, 1000, 1100),
    }),
    fc.record({ what: fc.constant('all' as const), app: fc.nat(2), count: fc.constantFrom(0, 1, 40, 500) }),
  );
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 30, size: 'max' }), fc.boolean(), async (steps, clusterwide) => {
      const node = new Node(limits);
      const trace = steps.filter(({ what }) => clusterwide || what !== 'all');
      const where = (id: number): string => namespaces[id % 3] ?? 'a';
      const app = (id: number): string => `x${id % 4}`;
      let generation = 0;
      for (const id of [1, 2, 3, 4, 5, 6]) node.add(id, where(id), app(id));
      for (const one of trace) {
        generation += 1;
        if (one.what === 'come') node.add(one.id, where(one.id), app(one.id));
        else if (one.what === 'go') node.dropEndpoint(one.id);
        else if (one.what === 'edit') node.allow(`${where(one.id)}/${app(one.id)}`, one.count, generation, generation);
        else if (one.count === 0) node.forbid(`x${one.app}`);
        else node.allow(`x${one.app}`, one.count, generation, 30_000);
        await node.settle();
        const { node: all, namespaces: by } = node.recomputed();
        const use = node.engine.rowUse();
        expect([use.rows, use.largest?.rows ?? 0]).toEqual([all, Math.max(0, ...by.values())]);
        expect(all).toBeLessThanOrEqual(limits.perNode + namespaces.length * OWN_ROWS);
        // Of slots that namespaces share, each has the whole, though it may have no room for it.
        if (!clusterwide) for (const rows of by.values()) expect(rows).toBeLessThanOrEqual(limits.perNamespace);
        for (const endpoint of node.engine.endpoints()) {
          const failure = node.engine.failure(endpoint);
          seen[failure === undefined ? 'admitted' : 'refused'] += 1;
          if (failure === undefined) continue;
          expect(failure).toBeInstanceOf(RowShareError);
          // It would not fit for any of the namespaces that it is for.
          const rules = Array.from(node.engine.selecting(endpoint), ([, rule]) => rule);
          const needs = rowsOf(rules);
          const alike = (id: number): boolean =>
            isDeepStrictEqual(new Set(Array.from(node.engine.selecting(id), ([, rule]) => rule)), new Set(rules));
          for (const id of [...node.engine.endpoints()].filter(alike)) {
            const used = by.get(where(id)) ?? 0;
            const fits = all + needs <= limits.perNode || used + needs <= OWN_ROWS;
            expect(used + needs <= limits.perNamespace && fits).toBe(false);
          }
        }
      }
    }),
    { numRuns: 40 },
  );
  expect(Math.min(seen.refused, seen.admitted)).toBeGreaterThan(50);
});
