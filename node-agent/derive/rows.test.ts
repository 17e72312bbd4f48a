import { expect, it } from '@jest/globals';
import fc from 'fast-check';
import { blocksOf, rangesOf } from './rows.ts';

it('ranges of ports are read back from their blocks', () => {
  const row = fc.record({
    protocol: fc.constantFrom(6 as const, 17 as const),
    from: fc.integer({ min: 0, max: 0xffff }),
    length: fc.integer({ min: 0, max: 300 }),
    verdict: fc.constantFrom('allow' as const, 'deny' as const),
  });
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
      const read = rangesOf(blocksOf(rows).toReversed());
      expect(read).toEqual(rows.map(({ verdict, ...rest }) => ({ ...rest, deny: verdict === 'deny' })));
    }),
  );
  const halves = [0, 1].map((half) => ({ protocol: 6, port: half * 0x8000, bits: 1, deny: false, cookie: 1 }));
  expect(rangesOf(halves)).toEqual([{ protocol: 6, from: 0, to: 0xffff, deny: false, cookie: 1 }]);
});
