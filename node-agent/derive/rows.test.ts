import { expect, it } from '@jest/globals';
import type { ClassRows, Decision } from '@weir/policy';
import { anyDecision } from '@weir/policy/testing/decisions.ts';
import fc from 'fast-check';
import { blocksOf, passing, passingKey, rangesOf, rowsKey } from './rows.ts';

const ALLOW: Decision = { verdict: 'allow' };
const DENY: Decision = { verdict: 'deny' };
const AUTHENTICATE: Decision = { verdict: 'authenticate' };
const redirect = (port: number): Decision => ({ verdict: 'redirect', listener: { port, priority: 101 } });

it('ranges of ports are read back from their blocks', () => {
  const row = fc
    .tuple(
      fc.record({
        protocol: fc.constantFrom(6 as const, 17 as const),
        from: fc.integer({ min: 0, max: 0xffff }),
        length: fc.integer({ min: 0, max: 300 }),
      }),
      anyDecision,
    )
    .map(([ports, decision]) => ({ ...ports, ...decision }));
  fc.assert(
    fc.property(fc.array(row, { maxLength: 12 }), (made) => {
      // Disjoint, as the rows of a class are; each with a decision of its own.
      const rows = made
        .map(({ length, ...rest }, cookie) => ({ ...rest, cookie, to: Math.min(rest.from + length, 0xffff) }))
        .toSorted((a, b) => a.protocol - b.protocol || a.from - b.from)
        .filter(({ protocol, from }, at, all) => {
          const before = all.slice(0, at).filter((other) => other.protocol === protocol);
          return before.every(({ to }) => to < from);
        });
      expect(rangesOf(blocksOf(rows).toReversed())).toEqual(rows);
    }),
  );
  const halves = [0, 1].map((half) => ({ protocol: 6, port: half * 0x8000, bits: 1, ...ALLOW, cookie: 1 }));
  expect(rangesOf(halves)).toEqual([{ protocol: 6, from: 0, to: 0xffff, ...ALLOW, cookie: 1 }]);
});

it('a class of redirects is neither one that allows nor one that denies', () => {
  const rows = (decision: Decision): ClassRows => [{ protocol: 6, from: 80, to: 80, ...decision, cookie: 1 }];
  const kinds = [ALLOW, DENY, redirect(15_000), redirect(15_001), AUTHENTICATE].map(rows);
  for (const key of [rowsKey, passingKey]) expect(new Set(kinds.map(key)).size).toBe(kinds.length);
  expect(passingKey(rows(DENY))).toBe(passingKey([]));
});

it('neighbours that pass in the same way are one, whichever rules decide', () => {
  const decisions = [ALLOW, ALLOW, redirect(15_000), redirect(15_000), redirect(15_001), DENY, AUTHENTICATE];
  const rows = decisions.map((each, at) => ({ protocol: 6 as const, from: at, to: at, ...each, cookie: at }));
  expect(passing(rows)).toEqual([
    { protocol: 6, from: 0, to: 1, ...ALLOW },
    { protocol: 6, from: 2, to: 3, ...redirect(15_000) },
    { protocol: 6, from: 4, to: 4, ...redirect(15_001) },
    { protocol: 6, from: 6, to: 6, ...AUTHENTICATE },
  ]);
});
