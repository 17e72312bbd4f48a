/** What the slots of a namespace may come to together. */
import { describe, expect, it } from '@jest/globals';
import { labelsKey } from '@weir/labels';
import { type CompiledPolicy, rowsIn } from '@weir/policy';
import fc from 'fast-check';
import { NamespaceRows } from './namespace-rows.ts';
import { basic, podLabels, rule, type World } from './testing/model-world.ts';

/** A direction may have so many rows, a namespace four times as many. */
const MOST = 100;

async function settle(world: World): Promise<void> {
  while ((await world.plan()).again);
}

describe('the rows of a namespace', () => {
  const NAMES = ['x', 'y', 'z'];
  const HASHES = NAMES.map((name) => `hash-${name}`);

  /** An endpoint for each name, with `ports` ports for everybody: of each port a row for each class of peers. */
  function world(): World {
    const made = basic({ mostRows: MOST });
    for (const [at, name] of NAMES.entries()) {
      made.pod(name, 'a', [], name);
      made.identity(290 + at, 'a', name);
      made.endpoint(10 + at, { pod: { namespace: 'ns', name, uid: `u-${name}` } });
      const selector = { requirements: [{ key: 'k8s:version', operator: 'In' as const, values: [name] }] };
      const row = { hash: HASHES[at] ?? '', selector, identities: [], origin: 'cluster' as const };
      made.db.write([made.tables.peerSets], (txn) => txn.upsert(made.tables.peerSets, row));
    }
    return made;
  }

  function policy(of: World, at: number, generation: number, ports: number): void {
    const each = (port: number) => ({
      ...rule('a', undefined, 1000 * (1 + at) + port),
      ...{ subject: HASHES[at] ?? '', peers: [{ entity: 'all' as const }] },
      ports: [{ protocol: 'TCP' as const, from: 2 * port, to: 2 * port }],
    });
    const both = Array.from({ length: ports }, (_, port) => each(port)).flatMap((one) => [
      one,
      { ...one, direction: 'egress' as const, cookie: one.cookie + 500 },
    ]);
    of.policy(NAMES[at] ?? '', generation, both);
  }

  function closed(of: World): string[] {
    return NAMES.flatMap((name, at) => [...of.model.excesses(10 + at)].map(([direction]) => `${name} ${direction}`));
  }

  it('closes what does not fit any more, in the order of endpoints, and names the namespace; what is small fits', async () => {
    const one = world();
    // Ingress needs some 90 rows of each, egress some 50.
    for (const at of [0, 1, 2]) policy(one, at, 1, 12);
    await settle(one);
    expect(closed(one)).toEqual(['z egress']);
    const [[, excess] = []] = [...one.model.excesses(12)];
    expect(excess?.message).toMatch(
      /^egress needs more rows .* than are left of the 400 that all pods of namespace ns may have on one node; /,
    );
    policy(one, 2, 2, 1);
    await settle(one);
    expect(closed(one)).toEqual([]);
  });

  it('opens it again once others need less, and comes to what a fresh agent comes to', async () => {
    const one = world();
    for (const at of [0, 1, 2]) policy(one, at, 1, 12);
    await settle(one);
    policy(one, 0, 2, 2);
    await settle(one);
    expect(closed(one)).toEqual([]);
    policy(one, 0, 3, 12);
    await settle(one);
    const fresh = world();
    for (const [at, generation] of [3, 1, 1].entries()) policy(fresh, at, generation, 12);
    await settle(fresh);
    expect(closed(one)).toEqual(['z egress']);
    expect(one.result()).toEqual(fresh.result());
  });

  it('closes no pod of another namespace that has the same rules, whose slot it shares', async () => {
    const one = world();
    for (const at of [0, 1, 2]) policy(one, at, 1, 12);
    await settle(one);
    expect(closed(one)).toEqual(['z egress']);
    const { db, tables } = one;
    const pod = { namespace: 'other', name: 'v', uid: 'u-v' };
    const labels = { ...podLabels('a', 'z'), 'k8s:io.kubernetes.pod.namespace': 'other' };
    db.write([tables.namespaces, tables.localPods, tables.identities], (txn) => {
      txn.upsert(tables.namespaces, { name: 'other', labels: {} });
      const own = { labels: { app: 'a', version: 'z' }, serviceAccount: '', namedPorts: [], addresses: [] };
      txn.upsert(tables.localPods, { ...pod, ...own });
      txn.upsert(tables.identities, { id: 293, labels, labelsKey: labelsKey(labels) });
    });
    one.endpoint(13, { pod });
    await settle(one);
    expect(one.states.get(13)).toMatchObject({ slot: one.states.get(12)?.slot, state: 'ready' });
    expect([...one.model.excesses(13)]).toEqual([]);
    // Without it the slot counts for the first namespace again.
    one.dropEndpoint(13);
    await settle(one);
    expect(closed(one)).toEqual(['z egress']);
  });
});

it('NamespaceRows never gives a namespace more than its rows, nor takes any from another', () => {
  const direction = fc.nat(130).map((rows): CompiledPolicy['ingress'] => ({
    ...{ enforced: true, scope: { unknown: [], pod: [], world: [] } },
    addresses: [],
    classes: Array.from({ length: rows }, (_, id) => ({ members: [300 + id], rows: [] })),
  }));
  const slot = fc.record({ namespace: fc.constantFrom('a', 'b'), ingress: direction, egress: direction });
  let beyond = 0;
  fc.assert(
    fc.property(fc.array(slot, { maxLength: 12 }), (slots) => {
      const rows = new NamespaceRows(MOST);
      const used: Record<string, number> = { a: 0, b: 0 };
      for (const { namespace, ingress, egress } of slots) {
        const before = rows.limit(namespace);
        expect(before).toBe(Math.min(MOST, 4 * MOST - (used[namespace] ?? 0)));
        const fits = rows.take(namespace, { ingress, egress });
        for (const each of ['ingress', 'egress'] as const) {
          if (fits[each].excess === undefined) {
            const { classes } = fits[each];
            used[namespace] = (used[namespace] ?? 0) + rowsIn(fits[each]) + Math.floor(classes.length / 4);
          } else {
            beyond += 1;
            expect(fits[each]).toMatchObject({ enforced: true, classes: [] });
          }
        }
        expect(used[namespace]).toBeLessThanOrEqual(4 * MOST);
      }
    }),
    { numRuns: 200 },
  );
  expect(beyond).toBeGreaterThan(100);
});
