import { describe, expect, it } from '@jest/globals';
import { createStateDB } from '@weir/statedb';
import fc from 'fast-check';
import { type CountedEndpoint, PolicyCounts } from './policy-counts.ts';
import type { Generations } from './policy-failures.ts';

const UIDS = ['p', 'q', 'r'];

function counting() {
  const db = createStateDB({ freeze: true });
  const counts = new PolicyCounts(db);
  return {
    settle: (endpoints: readonly CountedEndpoint[]) =>
      db.write([...counts.tables], (txn) => [...counts.settle(txn, endpoints)].sort()),
    of: (uid: string) => {
      using snapshot = db.read();
      return counts.of(snapshot, uid);
    },
  };
}

/** By all of the endpoints at once. */
function counted(endpoints: readonly CountedEndpoint[], uid: string) {
  const having = endpoints.filter(({ wanted, held }) => uid in wanted || uid in held);
  if (having.length === 0) return undefined;
  return { generation: Math.min(...having.map(({ held }) => held[uid] ?? 0)), endpoints: having.length };
}

describe('counts of policies', () => {
  it('are those of all endpoints, after any changes; the policies that changed are told', () => {
    const generations = fc
      .array(fc.record({ uid: fc.constantFrom(...UIDS), generation: fc.integer({ min: 1, max: 3 }) }), { maxLength: 3 })
      .map((of): Generations => Object.fromEntries(of.map(({ uid, generation }) => [uid, generation])));
    // Of few objects, so that endpoints share them, and the kernel often has what is wanted.
    const rounds = fc.array(generations, { minLength: 1, maxLength: 4 }).chain((objects) => {
      const one = fc.constantFrom(...objects);
      const endpoint = fc.record({ id: fc.integer({ min: 1, max: 4 }), wanted: one, held: one });
      return fc.array(fc.uniqueArray(endpoint, { selector: ({ id }) => id }), { minLength: 1, maxLength: 6 });
    });
    fc.assert(
      fc.property(rounds, (all) => {
        const { settle, of } = counting();
        let before: readonly unknown[] = UIDS.map(() => undefined);
        for (const endpoints of all) {
          const told = settle(endpoints);
          const now = UIDS.map(of);
          expect(now).toEqual(UIDS.map((uid) => counted(endpoints, uid)));
          const differ = UIDS.filter((_, at) => JSON.stringify(now[at]) !== JSON.stringify(before[at]));
          expect(told).toEqual(expect.arrayContaining(differ));
          expect(settle(endpoints)).toEqual([]);
          before = now;
        }
      }),
    );
  });

  it('look only at policies of endpoints that have others, once for all that have the same', () => {
    let looks = 0;
    const watched = (of: Record<string, number>): Generations =>
      new Proxy(of, {
        ownKeys: (target) => {
          looks += 1;
          return Reflect.ownKeys(target);
        },
      });
    const looked = (work: () => readonly string[]): readonly [readonly string[], number] => {
      looks = 0;
      return [work(), looks];
    };
    const { settle, of } = counting();
    const endpoints = (shared: Generations, own: Generations): CountedEndpoint[] => [
      ...Array.from({ length: 50 }, (_, id) => ({ id: id + 1, wanted: shared, held: shared })),
      { id: 60, wanted: own, held: own },
    ];
    const [shared, own] = [watched({ p: 1, q: 1 }), watched({ p: 1, r: 1 })];
    const [, once] = looked(() => settle(endpoints(shared, own)));
    expect(looked(() => settle(endpoints(shared, own)))).toEqual([[], 0]);
    expect(looked(() => settle(endpoints(shared, watched({ p: 1, r: 2 }))))[0]).toEqual(['r']);
    expect(looked(() => settle(endpoints(watched({ p: 2, q: 1 }), own)))[0]).toEqual(['p', 'r']);
    expect(of('p')).toEqual({ generation: 1, endpoints: 51 });
    const [, more] = looked(() => settle(endpoints(watched({ p: 3, q: 1 }), watched({ p: 1, r: 1 }))));
    // What 50 have before and after, and what one has.
    expect(more).toBeLessThanOrEqual(2 * once);
  });
});
