/** The list of advisories in docs/security.md: each row says what is so here, by tests that exist and run. */
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from '@jest/globals';
import { ROOT } from './cluster/run.ts';

const text = (file: string): string => readFileSync(join(ROOT, file), 'utf8');
const section = /\n## Cilium's advisories\n([\s\S]*?)\n## /.exec(text('docs/security.md'))?.[1] ?? '';

interface Row {
  readonly what: string;
  readonly kind: string;
  readonly possible: string;
  readonly shown: string;
}
const rows: readonly Row[] = section
  .split('\n')
  .filter((line) => line.startsWith('| '))
  .map((line) => line.slice(2, -2).split(' | '))
  .filter(([first]) => first !== 'advisory' && first !== 'what')
  .map(([what = '', kind = '', possible = '', shown = '', ...more]) => {
    expect(more).toEqual([]);
    return { what, kind, possible, shown };
  });

/** The tests that a row names. */
const named = ({ shown }: Row): { readonly file: string; readonly title: string }[] =>
  [...shown.matchAll(/`([^`]+)` "([^"]+)"/g)].map(([, file = '', title = '']) => ({ file, title }));

describe('the list of advisories', () => {
  it('has each advisory once, with its number where it has one', () => {
    const ids = section.match(/GHSA(-[23456789cfghjmpqrvwx]{4}){3}/g) ?? [];
    expect(ids).toHaveLength(39);
    expect(new Set(ids).size).toBe(ids.length);
    const numbers = section.match(/CVE-\d{4}-\d{4,}/g) ?? [];
    expect(new Set(numbers).size).toBe(numbers.length);
    expect(section.match(/GHSA-/g)).toHaveLength(ids.length);
  });

  it.each(rows)('$what: says whether it is possible, and why', ({ what, kind, possible }) => {
    expect(what).not.toBe('');
    expect(kind.length).toBeGreaterThan(10);
    expect(possible).toMatch(/^(no|in part|yes): .{5,}$/);
  });

  it.each(rows)('$what: is shown by tests that exist and are not left out', (row) => {
    const tests = named(row);
    if (tests.length === 0) {
      expect(row.shown).toBe('no such part');
      return;
    }
    expect(tests.map(({ file, title }) => `\`${file}\` "${title}"`).join('; ')).toBe(row.shown);
    for (const { file, title } of tests) {
      expect([file, existsSync(join(ROOT, file))]).toEqual([file, true]);
      const source = text(file);
      expect([file, title, ["'", '"', '`'].some((quote) => source.includes(`${quote}${title}${quote}`))]).toEqual([
        file,
        title,
        true,
      ]);
      expect(source).not.toMatch(/\b(?:it|test|describe)\.(?:skip|todo|only)\b|\b[xf](?:it|describe)\(/);
    }
  });
});
