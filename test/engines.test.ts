/** `engines` says what the dependencies need: the oldest Node that it admits runs each of them. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from '@jest/globals';
import { LIBRARIES, OLDEST_NODE } from '../scripts/packages.ts';
import { ROOT } from './cluster/run.ts';

interface Locked {
  readonly engines?: { readonly node?: string };
  readonly dependencies?: Readonly<Record<string, string>>;
}

const { packages } = JSON.parse(readFileSync(join(ROOT, 'package-lock.json'), 'utf8')) as {
  readonly packages: Readonly<Record<string, Locked>>;
};

type Version = readonly [major: number, minor: number, patch: number];

function versionOf(text: string): Version {
  const [major = 0, minor = 0, patch = 0] = text.split('.').map(Number);
  return [major, minor, patch];
}

/** Whether a is not older than b. */
function reaches(a: Version, b: Version): boolean {
  const at = a.findIndex((number, index) => number !== b[index]);
  return at < 0 || (a[at] ?? 0) > (b[at] ?? 0);
}

/** Ranges as `engines` write them: alternatives of comparators. Throws for one that it cannot read. */
function admits(range: string, node: Version): boolean {
  return range.split('||').some((alternative) =>
    alternative
      .trim()
      .replace(/([<>=^~]) +/g, '$1')
      .split(/ +/)
      .every((comparator) => {
        const [, operator = '', text = ''] =
          /^(>=|>|<=|<|\^|~|=|)v?(\*|\d+(?:\.\d+)*)(?:\.[x*])*$/.exec(comparator) ?? [];
        if (text === '') throw new Error(`no range: ${range}`);
        if (text === '*') return true;
        const wanted = versionOf(text);
        const parts = operator === '^' ? 1 : operator === '~' ? 2 : text.split('.').length;
        if (operator === '>=') return reaches(node, wanted);
        if (operator === '<=') return reaches(wanted, node);
        if (operator === '>') return !reaches(wanted, node);
        if (operator === '<') return !reaches(node, wanted);
        return reaches(node, wanted) && wanted.slice(0, parts).every((number, index) => number === node[index]);
      }),
  );
}

describe('ranges', () => {
  it.each([
    ['>=18', true],
    ['^18.14.0 || ^20.0.0 || ^22.0.0 || >=24.0.0', true],
    ['^20.19.0 || >=24.1', false],
    ['18 || 20 || >=22', true],
    ['>= 12 < 24', false],
    ['24', true],
    ['24.x', true],
    ['6.* || 8.*', false],
    ['~24.0.0', true],
    ['^23.5.0', false],
    ['*', true],
  ])('%s', (range, admitted) => {
    expect(admits(range, [24, 0, 0])).toBe(admitted);
  });
});

it('the repository', () => {
  const oldest = versionOf(/^>=(.*)$/.exec(packages['']?.engines?.node ?? '')?.[1] ?? '');
  expect(oldest[0]).toBeGreaterThan(20);
  const wants = Object.entries(packages).flatMap(([path, { engines }]) =>
    engines?.node === undefined ? [] : [[path, engines.node] as const],
  );
  expect(wants.length).toBeGreaterThan(100);
  expect(wants.filter(([, range]) => !admits(range, oldest))).toEqual([]);
});

it.each(LIBRARIES)('%s as it is published', (library) => {
  const oldest = versionOf(OLDEST_NODE);
  const needed = new Set<string>();
  const collect = (path: string): void => {
    for (const name of Object.keys(packages[path]?.dependencies ?? {})) {
      const installed = `node_modules/${name}`;
      if (needed.has(installed)) continue;
      needed.add(installed);
      collect(installed);
    }
  };
  collect(`shared/${library}`);
  expect(needed.size).toBeGreaterThan(0);
  const wants = [...needed].map((path) => [path, packages[path]?.engines?.node ?? '*'] as const);
  expect(wants.filter(([, range]) => !admits(range, oldest))).toEqual([]);
});
