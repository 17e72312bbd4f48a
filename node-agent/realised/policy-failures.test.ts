import { describe, expect, it } from '@jest/globals';
import fc from 'fast-check';
import { type Fault, failuresOf, type Generations } from './policy-failures.ts';

const generations = fc.dictionary(fc.constantFrom('p', 'q', 'r'), fc.integer({ min: 1, max: 2 }), {
  noNullPrototype: true,
});

/** Faults at endpoints, some of which have the same policies as one object. */
const faults: fc.Arbitrary<Fault[]> = fc
  .tuple(fc.array(generations, { minLength: 1, maxLength: 4 }), fc.array(fc.tuple(fc.nat(3), fc.nat(5), fc.nat(1))))
  .map(([pool, at]) =>
    at.map(([of, but, reason], endpoint) => ({
      of: pool[of % pool.length] ?? {},
      ...(but < pool.length ? { but: pool[but] ?? {} } : {}),
      reason: `R${reason}`,
      message: `endpoint ${endpoint}`,
    })),
  );

describe('failuresOf', () => {
  it('says of each policy, generation and reason the first fault, and how many more there are', () => {
    const [p, q]: Generations[] = [
      { p: 1, both: 7 },
      { q: 2, both: 7 },
    ];
    const at = (of: Generations | undefined, endpoint: number, more = {}): Fault => {
      return { of: of ?? {}, reason: 'R', message: `endpoint ${endpoint}`, ...more };
    };
    const said = (list: readonly Fault[]): string[] =>
      failuresOf(list).map(({ uid, generation, reason, message }) => `${uid} ${generation} ${reason}: ${message}`);
    expect(said([at(p, 1), at(q, 2), at(p, 3), at(p, 4, { but: { p: 1, both: 6 } })])).toEqual([
      'p 1 R: endpoint 1 (and 1 more)',
      'both 7 R: endpoint 1 (and 3 more)',
      'q 2 R: endpoint 2',
    ]);
    expect(said([at(q, 1, { count: 3 }), at(q, 2, { reason: 'S' })])).toEqual([
      'q 2 R: endpoint 1 (and 2 more)',
      'both 7 R: endpoint 1 (and 2 more)',
      'q 2 S: endpoint 2',
      'both 7 S: endpoint 2',
    ]);
  });

  it('says the same whether endpoints share their policies or each has its own', () => {
    const sorted = (list: readonly Fault[]): string[] =>
      failuresOf(list)
        .map((failure) => JSON.stringify(failure))
        .sort();
    fc.assert(
      fc.property(faults, (list) => {
        expect(sorted(list)).toEqual(sorted(list.map((each) => structuredClone(each))));
      }),
    );
  });

  it('looks once at policies that many endpoints share', () => {
    let looks = 0;
    const of = new Proxy<Generations>(
      { p: 1 },
      {
        ownKeys: (target) => {
          looks += 1;
          return Reflect.ownKeys(target);
        },
      },
    );
    const everywhere = Array.from({ length: 100 }, (_, id) => ({ of, reason: 'R', message: `endpoint ${id}` }));
    expect(failuresOf(everywhere)).toEqual([
      { uid: 'p', generation: 1, reason: 'R', message: 'endpoint 0 (and 99 more)' },
    ]);
    expect(looks).toBe(1);
  });
});
