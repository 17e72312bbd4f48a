/** Identities that join and leave peer sets: the slots that name these are compiled for them alone. */
import { expect, it } from '@jest/globals';
import { LOCAL_ENDPOINT_BASE } from '@weir/identity';
import type { ResolvedRule } from '@weir/policy';
import fc from 'fast-check';
import { runs } from '../../test/runs.ts';
import { tableKey } from '../create-tables.ts';
import { APPS, copy, podLabels, rule, World } from './testing/model-world.ts';

const IDS = Array.from({ length: 8 }, (_, at) => 256 + at);
/** App, and version where there is one. */
const LABELS: readonly (readonly [string, string?])[] = [
  ['b'],
  ['b', 'v1'],
  ['b', 'v2'],
  ['c'],
  ['c', 'v2'],
  ['a', 'v2'],
];

const ports = (from: number) => ({ ports: [{ protocol: 'TCP' as const, from, to: from }] });
/** Sets that overlap, so that there are classes of several rules; a deny; egress that names no set. */
const RULES: readonly ResolvedRule[] = [
  { ...rule('a', 'b', 1), ...ports(80) },
  { ...rule('a', 'c', 2), ...ports(81) },
  { ...rule('a', 'b', 3), peers: [{ peerSet: 'versions' }], ...ports(82) },
  { ...rule('a', 'b', 4), peers: [{ peerSet: 'versions' }, { peerSet: 'hash-c' }], verdict: 'deny', ...ports(81) },
  { ...rule('a', { cidr: '198.51.100.0/24' }, 5), direction: 'egress' },
];

function world(): World {
  const made = new World();
  for (const app of APPS) made.peerSet(app, []);
  const selector = { requirements: [{ key: 'k8s:version', operator: 'In' as const, values: ['v2'] }] };
  made.db.write([made.tables.peerSets], (txn) =>
    txn.upsert(made.tables.peerSets, { hash: 'versions', selector, identities: [], origin: 'cluster' }),
  );
  made.policy('p', 1, RULES);
  made.identity(300, 'a');
  made.namespace();
  made.pod('w', 'a');
  made.endpoint(1, { pod: { namespace: 'ns', name: 'w' } });
  return made;
}

it('is computed step by step as at once, and leaves every class alone that nobody joins or leaves', async () => {
  const step = fc.record({
    id: fc.constantFrom(...IDS),
    as: fc.option(fc.constantFrom(...LABELS), { nil: undefined, freq: 4 }),
    addressed: fc.boolean(),
  });
  let same = 0;
  await fc.assert(
    fc.asyncProperty(fc.array(fc.array(step, { minLength: 1, maxLength: 3 }), { maxLength: 10 }), async (rounds) => {
      const grown = world();
      while ((await grown.plan()).again);
      for (const steps of rounds) {
        const before = new Map(grown.slots);
        for (const { id, as, addressed } of steps) {
          const { identities } = grown.tables;
          if (as !== undefined) grown.identity(id, ...as);
          else grown.db.write([identities], (txn) => txn.delete(identities, tableKey.identity(id)));
          if (addressed) grown.remote(`r${id}`, `10.9.9.${id - 250}`, id);
        }
        while ((await grown.plan()).again);
        const fresh = new World();
        fresh.numbers.adopt(grown.numbers.state());
        copy(grown, fresh);
        while ((await fresh.plan()).again);
        expect(grown.result()).toEqual(fresh.result());
        for (const [slot, row] of grown.slots) {
          const known = before.get(slot);
          if (known === row) continue;
          const had = new Set(known?.compiled.ingress.classes);
          same += row.compiled.ingress.classes.filter((one) => had.has(one)).length;
        }
      }
    }),
    { numRuns: runs(50) },
  );
  expect(same).toBeGreaterThan(runs(50));
});

it("compiles a label set of this node's own that comes or goes alone: classes of other peers stay", async () => {
  const one = world();
  one.identity(301, 'c');
  while ((await one.plan()).again);
  const classesOf = () => [...one.slots.values()].flatMap(({ compiled }) => compiled.ingress.classes);
  const before = classesOf();
  expect(before.some(({ members }) => members.includes(301))).toBe(true);
  one.endpoint(2, { labels: podLabels('b') });
  while ((await one.plan()).again);
  const own = Array.from(one.model.localIdentities()).find(({ id }) => id >= LOCAL_ENDPOINT_BASE);
  const joined = classesOf();
  expect(joined.filter(({ members }) => members.includes(own?.id ?? 0))).toHaveLength(1);
  expect(before.every((known) => joined.includes(known))).toBe(true);
  one.dropEndpoint(2);
  while ((await one.plan()).again);
  expect(classesOf()).toEqual(before);
  expect(before.every((known) => classesOf().includes(known))).toBe(true);
});
