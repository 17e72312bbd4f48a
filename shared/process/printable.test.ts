import { describe, expect, it } from '@jest/globals';
import fc from 'fast-check';
import { clipped, line, printable, printableLines } from './printable.ts';

describe('printable', () => {
  it('shows what is not seen, and leaves what is', () => {
    expect(printable('a\tb\nc\u001b[2J\u009b\u202e\u200b\u{e0041}\ud800')).toBe(
      'a\\tb\\nc\\u001b[2J\\u009b\\u202e\\u200b\\udb40\\udc41\\ud800',
    );
    for (const text of ['', 'app=web, "x" \\ é ß 漢字 العربية 🙂 e\u0301']) expect(printable(text)).toBe(text);
    expect(line('a\nb')).toBe('a\\nb\n');
    expect(printableLines('a\nb\r\n')).toBe('a\nb\\r\n');
  });

  it('leaves JSON what it is, and is done once', () => {
    fc.assert(
      fc.property(fc.json({ stringUnit: 'binary' }), (json) => {
        const value: unknown = JSON.parse(json);
        const text = JSON.stringify(value, null, 2);
        expect(JSON.parse(printableLines(text))).toEqual(value);
        expect(printableLines(printableLines(text))).toBe(printableLines(text));
        expect(printable(text).match(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/u)).toBeNull();
      }),
    );
  });

  it('is cut to a length that it has with its escapes', () => {
    expect(clipped('abc', 3)).toBe('abc');
    expect(clipped('abcd', 3)).toBe('ab…');
    expect(clipped('\u0000'.repeat(1_000_000), 10)).toBe('\\u0000\\u0…');
  });
});
