import { expect, it } from '@jest/globals';
import fc from 'fast-check';
import { patched } from './patched-map.ts';

it('a patched map is the map with its changes, and leaves those before it as they were', () => {
  let copies = 0;
  const change = fc.tuple(fc.nat(60), fc.option(fc.nat(3), { nil: undefined, freq: 2 }));
  fc.assert(
    fc.property(
      fc.array(fc.tuple(fc.nat(60), fc.nat(3)), { maxLength: 60, size: 'max' }),
      fc.array(fc.array(change, { maxLength: 6 }), { maxLength: 15, size: 'max' }),
      (first, rest) => {
        const model = new Map(first);
        let map: ReadonlyMap<number, number> = new Map(first);
        const kept: [ReadonlyMap<number, number>, ReadonlyMap<number, number>][] = [];
        for (const changes of rest) {
          kept.push([map, new Map(model)]);
          for (const [key, value] of changes)
            if (value === undefined) model.delete(key);
            else model.set(key, value);
          map = patched(map, new Map(changes));
          copies += map instanceof Map ? 1 : 0;
        }
        kept.push([map, model]);
        for (const [one, expected] of kept) {
          const sorted = [...expected].sort(([a], [b]) => a - b);
          expect([...one].sort(([a], [b]) => a - b)).toEqual(sorted);
          expect([...one.entries()]).toEqual([...one]);
          expect([...one.keys()]).toEqual([...one].map(([key]) => key));
          expect([...one.values()]).toEqual([...one].map(([, value]) => value));
          expect(one.size).toBe(expected.size);
          const told: [number, number][] = [];
          one.forEach((value, key) => {
            told.push([key, value]);
          });
          expect(told).toEqual([...one]);
          const asked = Array.from({ length: 61 }, (_, key) => [one.has(key), one.get(key)]);
          expect(asked).toEqual(Array.from({ length: 61 }, (_, key) => [expected.has(key), expected.get(key)]));
        }
      },
    ),
  );
  expect(copies).toBeGreaterThan(0);
});
