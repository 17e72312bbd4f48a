/** The harness must pass what is right, and say plainly what is not. */
import { describe, expect, it } from '@jest/globals';
import fc from 'fast-check';
import { differences } from './differences.ts';
import type { Result } from './incremental.ts';
import { checkIncremental } from './incremental.ts';

type Step = readonly [key: string, value: number];
const step: fc.Arbitrary<Step> = fc.tuple(fc.constantFrom('a', 'b', 'c'), fc.integer({ min: 0, max: 3 }));

/** The last value of each key, doubled. The wrong one forgets to when a value comes back. */
function doubling(wrong: boolean, disposed: () => void = () => {}) {
  return () => {
    const inputs = new Map<string, number>();
    const doubled = new Map<string, number>();
    return {
      apply([key, value]: Step) {
        if (!(wrong && inputs.has(key) && value === 2)) doubled.set(key, value * 2);
        inputs.set(key, value);
      },
      incremental: (): Result => doubled,
      recompute: (): Result => new Map([...inputs].map(([key, value]) => [key, value * 2])),
      dispose: disposed,
    };
  };
}

describe('checkIncremental', () => {
  it('passes what is right, disposes every world, and awaits', async () => {
    let created = 0;
    let disposed = 0;
    await checkIncremental(
      {
        step,
        create: async () => {
          created++;
          const world = doubling(false, () => disposed++)();
          return {
            ...world,
            apply: async (each: Step) => {
              await Promise.resolve();
              world.apply(each);
            },
            incremental: async () => world.incremental(),
          };
        },
      },
      { numRuns: 20 },
    );
    expect(created).toBe(20);
    expect(disposed).toBe(20);
  });

  it('gives the shortest trace, the step and the keys that differ', async () => {
    const failed = await checkIncremental({ step, create: doubling(true) }, { seed: 1, numRuns: 500 }).catch(
      (error: unknown) => error,
    );
    expect(failed).toBeInstanceOf(Error);
    const { message } = failed as Error;
    expect(message).toMatch(/Counterexample: \[\[\["(.)",[013]\],\["\1",2\]/);
    expect(message).toContain('IncrementalMismatchError');
    expect(message).toMatch(/after step 2, \["(.)",2\], incremental \(\+\) is not what recomputing gives \(-\):/);
    expect(message).toMatch(/\n {2}- "(.)": 4\n {2}\+ "\1": [026]/);
  });

  it('compares before the first step, and fails with what a step throws', async () => {
    const world = doubling(false);
    await expect(
      checkIncremental({ step, create: () => ({ ...world(), recompute: () => [1] }) }, { numRuns: 1 }),
    ).rejects.toThrow('before the first step');
    const apply = (): never => {
      throw new Error('mine');
    };
    await expect(checkIncremental({ step, create: () => ({ ...world(), apply }) }, { numRuns: 1 })).rejects.toThrow(
      'mine',
    );
  });
});

describe('differences', () => {
  const equal: readonly (readonly [unknown, unknown])[] = [
    [
      { a: 1, b: 2 },
      { b: 2, a: 1 },
    ],
    [new Set([1, 2]), new Set([2, 1])],
    [
      new Map<unknown, unknown>([
        ['x', [1n]],
        [{ k: 1 }, 2],
      ]),
      new Map<unknown, unknown>([
        [{ k: 1 }, 2],
        ['x', [1n]],
      ]),
    ],
    [Uint8Array.of(1, 2), Uint8Array.of(1, 2)],
    [new Date(5), new Date(5)],
    [Number.NaN, Number.NaN],
  ];
  it.each(equal)('none between %p and %p', (a, b) => {
    expect(differences([a], [b])).toEqual([]);
    expect(differences(new Map([['k', a]]), new Map([['k', b]]))).toEqual([]);
  });

  const different: readonly (readonly [unknown, unknown])[] = [
    ['1', 1],
    [1n, 1],
    [0, -0],
    [null, undefined],
    [{}, { a: undefined }],
    [
      [1, 2],
      [2, 1],
    ],
    [new Set([1]), [1]],
    [new Map([['a', 1]]), { a: 1 }],
    [Uint8Array.of(1), [1]],
    [new Date(5), new Date(6)],
    [['a,b'], ['a', 'b']],
    [new (class Other {})(), {}],
  ];
  it.each(different)('some between %p and %p', (a, b) => {
    expect(differences([a], [b])).toHaveLength(2);
    expect(differences([b], [a])).toHaveLength(2);
  });

  it('refuses what holds no data to compare', () => {
    expect(() => differences([() => {}], [])).toThrow('a function cannot be compared');
  });

  it('show what is missing, too much, and how much more there is', () => {
    expect(differences(new Map([['a', 1]]), new Map([['b', 2]]))).toEqual(['  - "b": 2', '  + "a": 1']);
    const many = differences(
      Array.from({ length: 30 }, (_, i) => i),
      [],
    );
    expect(many).toHaveLength(21);
    expect(many.at(-1)).toBe('  ... and 10 more keys');
  });
});
