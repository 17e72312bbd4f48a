import { describe, expect, it } from '@jest/globals';
import fc from 'fast-check';
import { InvalidKeyError, keys } from './index.ts';
import { afterPrefix, parsePrefix, truncatePrefix } from './keys.ts';

const sign = (a: string | bigint | number, b: string | bigint | number) => (a < b ? -1 : a > b ? 1 : 0);

describe('keys', () => {
  it('orders signed and unsigned integers as numbers', () => {
    const signed = fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n });
    fc.assert(fc.property(signed, signed, (a, b) => sign(keys.int(a), keys.int(b)) === sign(a, b)));
    const unsigned = fc.bigInt({ min: 0n, max: 2n ** 64n - 1n });
    fc.assert(fc.property(unsigned, unsigned, (a, b) => sign(keys.uint(a), keys.uint(b)) === sign(a, b)));
    expect([3, -1, 0, -300].map((n) => keys.int(n)).sort()).toEqual([-300, -1, 0, 3].map((n) => keys.int(n)));
  });

  it('refuses numbers it cannot order', () => {
    for (const bad of [0.5, Number.NaN, 2 ** 60]) expect(() => keys.int(bad)).toThrow(InvalidKeyError);
    expect(() => keys.uint(-1)).toThrow(InvalidKeyError);
    expect(() => keys.int(2n ** 63n)).toThrow(InvalidKeyError);
  });

  it('joins parts without ambiguity, in the order of the parts', () => {
    const part = fc.string({ unit: fc.constantFrom('\0', '\u0001', 'a', '\u00ff') });
    const parts = fc.array(part, { maxLength: 3 });
    fc.assert(
      fc.property(parts, parts, (a, b) => {
        const equal = a.length === b.length && a.every((p, i) => p === b[i]);
        expect(keys.join(...a) === keys.join(...b)).toBe(equal);
        const isPrefix = a.length <= b.length && a.every((p, i) => p === b[i]);
        expect(keys.join(...b).startsWith(keys.join(...a))).toBe(isPrefix);
        const first = a.findIndex((p, i) => p !== b[i]);
        if (first >= 0 && first < b.length) {
          expect(sign(keys.join(...a), keys.join(...b))).toBe(sign(a[first] ?? '', b[first] ?? ''));
        }
      }),
    );
  });

  it('clears host bits and tells sizes apart', () => {
    expect(keys.prefix([10, 1, 2, 3], 8)).toBe(keys.prefix([10, 0, 0, 0], 8));
    expect(keys.prefix([10, 1, 2, 3], 9)).not.toBe(keys.prefix([10, 128, 2, 3], 9));
    expect(parsePrefix(keys.address(new Uint8Array(16)))).toEqual({ size: 16, bits: 128 });
    expect(truncatePrefix(keys.address([10, 255, 1, 1]), 4, 12)).toBe(keys.prefix([10, 240, 0, 0], 12));
    expect(() => keys.prefix([10, 0, 0, 0], 33)).toThrow(InvalidKeyError);
    expect(() => keys.prefix([256], 8)).toThrow(InvalidKeyError);
    expect(() => keys.prefix([], 0)).toThrow(InvalidKeyError);
    expect(() => parsePrefix('10.0.0.0/8')).toThrow(InvalidKeyError);
  });

  it('finds the end of a range of prefixes', () => {
    expect(afterPrefix('ab')).toBe('ac');
    expect(afterPrefix('a\uffff')).toBe('b');
    expect(afterPrefix('\uffff')).toBeUndefined();
    expect(afterPrefix('')).toBeUndefined();
  });
});
