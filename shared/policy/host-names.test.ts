import { describe, expect, it } from '@jest/globals';
import fc from 'fast-check';
import { canonicalHostName, HostNames, hostNameMatches } from './host-names.ts';

/** By a regular expression that says the same: slow, and obvious. */
function slowly(pattern: string, name: string): boolean {
  if (pattern === '*') return true;
  const [head, rest] = pattern.startsWith('**.') ? ['([-a-z0-9_]+\\.)+', pattern.slice(3)] : ['', pattern];
  return new RegExp(`^${head}${rest.replace(/[.]/g, '\\.').replace(/\*/g, '[-a-z0-9_]*')}$`).test(name);
}

describe('a pattern of names', () => {
  it.each([
    ['api.example.com', 'api.example.com', true],
    ['api.example.com', 'xapi.example.com', false],
    ['*', '', true],
    ['*', 'a.b.c', true],
    ['*.cilium.io', 'a.cilium.io', true],
    ['*.cilium.io', 'cilium.io', false],
    ['*.cilium.io', 'a.b.cilium.io', false],
    ['*cilium.io', 'subcilium.io', true],
    ['*cilium.io', 'cilium.io', true],
    ['*cilium.io', 'a.cilium.io', false],
    ['**.cilium.io', 'cilium.io', false],
    ['**.cilium.io', 'a.cilium.io', true],
    ['**.cilium.io', 'a.b.cilium.io', true],
    ['**.cilium.io', '.cilium.io', false],
    ['**.*.io', 'a.b.io', true],
    ['a*b*c.io', 'aXbbc.io'.toLowerCase(), true],
    ['a*b*c.io', 'ac.io', false],
    ['*.io', 'é.io', false],
  ])('%s of %s: %s', (pattern, name, is) => {
    expect(hostNameMatches(pattern, name)).toBe(is);
  });

  it('is what its regular expression is', () => {
    const text = (letters: string) =>
      fc.array(fc.constantFrom(...letters.split('')), { maxLength: 12 }).map((all) => all.join(''));
    fc.assert(
      fc.property(text('ab*.'), fc.constantFrom('', '**.'), text('ab..'), (pattern, head, name) => {
        const whole = head + pattern;
        fc.pre(!pattern.startsWith('**.'));
        expect([whole, name, hostNameMatches(whole, name)]).toEqual([whole, name, slowly(whole, name)]);
      }),
      { numRuns: 3000 },
    );
  });

  it('takes little time, whatever it is', () => {
    const began = process.cpuUsage().user;
    const name = `${'a'.repeat(60)}.`.repeat(4).slice(0, 253);
    for (const pattern of [`${'a*'.repeat(120)}b`, `**.${'*a'.repeat(100)}.b`, `**.${'*.'.repeat(60)}b`])
      for (let round = 0; round < 100; round += 1) hostNameMatches(pattern, name);
    // A policy may have as many patterns, and each question looks at all of them.
    const labels = `${'a.'.repeat(120)}b`;
    for (let round = 0; round < 50_000; round += 1) hostNameMatches('**.a*c.b', labels);
    expect((process.cpuUsage().user - began) / 1000).toBeLessThan(1000);
  });

  it('is one in any case, with a dot at the end or without', () => {
    expect(canonicalHostName('API.Example.COM.')).toBe('api.example.com');
    expect(canonicalHostName('.')).toBe('');
  });
});

it('finds the patterns that a name is of', () => {
  const names = new HostNames<number>();
  names.add('a.io', 1);
  names.add('*.io', 2);
  names.add('a.io', 3);
  names.add('*', 4);
  expect(new Set(names.of('a.io'))).toEqual(new Set([1, 2, 3, 4]));
  names.delete('a.io', 1);
  names.delete('*', 4);
  names.delete('none', 4);
  expect(new Set(names.of('a.io'))).toEqual(new Set([2, 3]));
  expect(names.has('b.io')).toBe(true);
  expect(names.has('b.org')).toBe(false);
});

describe('HostNames', () => {
  const label = fc.stringMatching(/^[ab*]{1,3}$/);
  const text = fc.oneof(
    fc.array(label, { minLength: 1, maxLength: 4 }).map((labels) => labels.join('.')),
    fc.constant('**.a'),
  );
  const name = fc.array(fc.stringMatching(/^[ab]{1,3}$/), { maxLength: 4 }).map((labels) => labels.join('.'));

  it('finds exactly the patterns that match', () => {
    fc.assert(
      fc.property(
        fc.uniqueArray(text, { maxLength: 8 }),
        fc.array(fc.nat(7)),
        fc.array(name),
        (patterns, gone, asked) => {
          const names = new HostNames<number>();
          for (const [key, pattern] of patterns.entries()) names.add(pattern, key);
          for (const key of gone) names.delete(patterns[key] ?? 'none', key);
          const left = [...patterns.keys()].filter((key) => !gone.includes(key));
          for (const each of ['', ...asked])
            expect([...names.of(each)].sort((one, other) => one - other)).toEqual(
              left.filter((key) => hostNameMatches(patterns[key] ?? '', each)),
            );
        },
      ),
    );
  });

  it('looks only at patterns that end as the name does', () => {
    const names = new HostNames<number>();
    for (let key = 0; key < 20_000; key += 1) names.add(`*.n${key}.io`, key);
    const began = process.cpuUsage().user;
    for (let round = 0; round < 20_000; round += 1) names.has(`a.n${round}.io`);
    // To hold each against each takes minutes.
    expect((process.cpuUsage().user - began) / 1000).toBeLessThan(5000);
  });
});
