/** The order of a plan's steps, by the tables that each is seen to read and write. */
import { describe, expect, it } from '@jest/globals';
import type { ResolvedRule } from '@weir/policy';
import { createStateDB } from '@weir/statedb';
import fc from 'fast-check';
import { STEPS, type Step } from './plan-steps.ts';
import { change, furnish, take } from './testing/model-changes.ts';
import { rule, World, ZONE } from './testing/model-world.ts';
import { recorded } from './testing/table-recorder.ts';

const OUTSIDE: ResolvedRule = { ...rule('a', { cidr: '198.51.100.0/24' }, 7), direction: 'egress' };
const DNS: ResolvedRule = {
  ...rule('a', 'b', 8),
  direction: 'egress',
  verdict: 'redirect',
  ports: [{ protocol: 'UDP', from: 53, to: 53 }],
  dns: ['*.example.com'],
};
/** No compiler takes it. */
const BAD: ResolvedRule = { ...rule('a', 'b', 9), ports: [{ protocol: 'TCP', from: 9, to: 5 }] };

interface Seen {
  readonly reads: Set<string>;
  readonly writes: Set<string>;
}

/** What each step reads and writes while inputs change at random. */
async function seen(): Promise<ReadonlyMap<Step, Seen>> {
  const out = new Map<Step, Seen>(STEPS.map((step) => [step, { reads: new Set(), writes: new Set() }]));
  const traces = fc.sample(fc.array(change, { minLength: 10, maxLength: 25 }), { numRuns: 60, seed: 3 });
  for (const trace of traces) {
    let step: Step | undefined;
    const db = recorded(createStateDB(), (kind, table) => {
      if (step !== undefined) out.get(step)?.[kind].add(table);
    });
    const world = new World({
      db,
      onStep: (begun) => {
        step = begun;
      },
    });
    const settle = async (): Promise<void> => {
      while ((await world.plan()).again);
    };
    furnish(world);
    for (const [at, each] of trace.entries()) {
      await settle();
      take(world, each);
      if (at % 8 === 3) world.policy('zone', at, [rule('a', at % 16 === 3 ? ZONE : 'b', 11)]);
      if (at % 8 === 6) world.policy('bad', at, at % 16 === 6 ? [BAD] : [OUTSIDE, DNS]);
    }
    await settle();
  }
  return out;
}

describe('the steps of a plan', () => {
  it('read and write the tables that they name; what a later step writes is named as it was before', async () => {
    const all = [...(await seen())];
    const written = new Set(all.flatMap(([, { writes }]) => [...writes]));
    const found = all.map(([{ name }, { reads, writes }], at) => {
      const later = new Set(all.slice(at + 1).flatMap(([, next]) => [...next.writes]));
      const asBefore = [...reads].filter((table) => later.has(table) && !writes.has(table));
      return {
        name,
        reads: [...reads.intersection(written)].sort(),
        asBefore: asBefore.sort(),
        writes: [...writes].sort(),
      };
    });
    const named = STEPS.map(({ name, reads, asBefore = {}, writes }) => {
      return { name, reads, asBefore: Object.keys(asBefore), writes };
    });
    expect(found).toEqual(named);
  });
});
