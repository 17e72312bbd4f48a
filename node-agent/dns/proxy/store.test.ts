import { execFileSync } from 'node:child_process';
import { appendFileSync, mkdtempSync, readdirSync, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from '@jest/globals';
import { canonicalHostName } from '@weir/policy';
import { pino } from 'pino';
import { eventually } from '../../../test/eventually.ts';
import { type Kept, readKept, readToProxy } from './read-message.ts';
import { Store } from './store.ts';

let folder: string;
let known: Map<number, Kept>;
const stores: Store[] = [];

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'weir-dns-store-'));
  known = new Map();
});
afterEach(async () => {
  for (const store of stores.splice(0)) await store.close();
  rmSync(folder, { recursive: true });
});

const selector = (number: number, pattern = 'a.com'): Kept => ({ type: 'selector', selector: number, pattern });

/** A process that keeps selectors. */
function start(leastBytes = 1 << 20): { readonly store: Store; readonly keep: (kept: Kept) => void } {
  known = new Map();
  const take = (kept: Kept): void => {
    if (kept.type === 'selector') known.set(kept.selector, kept);
    if (kept.type === 'selector-gone') known.delete(kept.selector);
  };
  const store = new Store({ folder, log: pino({ level: 'silent' }), all: () => [...known.values()], leastBytes });
  stores.push(store);
  store.open(take);
  return {
    store,
    keep(kept) {
      take(kept);
      store.append([kept]);
    },
  };
}

const journals = (): string[] => readdirSync(folder).filter((name) => name.startsWith('journal'));
const newest = (): string =>
  join(
    folder,
    journals()
      .toSorted((a, b) => Number(a.split('.')[1]) - Number(b.split('.')[1]))
      .at(-1) ?? '',
  );

it('gives the next process what it was given, without a close', () => {
  const { keep } = start();
  keep(selector(1));
  keep(selector(2, '*.com'));
  keep({ type: 'selector-gone', selector: 1 });
  const before = new Map(known);
  start();
  expect(known).toEqual(before);
  expect([...known.keys()]).toEqual([2]);
});

it('goes on with what comes before a torn line, and with what was kept after it was read', () => {
  const { keep } = start();
  for (let number = 1; number <= 3; number += 1) keep(selector(number));
  truncateSync(newest(), readFileSync(newest()).length - 5);
  const second = start();
  expect([...known.keys()]).toEqual([1, 2]);
  second.keep(selector(4));
  start();
  expect([...known.keys()]).toEqual([1, 2, 4]);
});

it('trusts nothing behind a line that cannot be read', () => {
  const { keep } = start();
  keep(selector(1));
  appendFileSync(newest(), '{"type":"selector","selector":-1,"pattern":"x"}\n');
  keep(selector(2));
  start();
  expect([...known.keys()]).toEqual([1]);
});

it('keeps its files below twice what it knows', async () => {
  const { keep } = start(1000);
  for (let number = 0; number < 2000; number += 1) {
    keep(selector(number % 10));
    if (number % 50 === 0) await new Promise((resolve) => setImmediate(resolve));
  }
  await eventually(
    () => Promise.resolve(readdirSync(folder).length),
    (files) => files <= 2,
  );
  const before = new Map(known);
  start(1000);
  expect(known).toEqual(before);
});

it('goes on with all that it knew where the disk takes only a part of a snapshot, and leaves no part', async () => {
  execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=32k', 'tmpfs', folder]);
  try {
    const { keep, store } = start();
    for (let number = 0; number < 200; number += 1) keep(selector(number));
    await store.close();
    const next = start();
    for (let number = 200; number < 500; number += 1) next.keep(selector(number));
    await next.store.close();
    expect(known.size).toBe(500);
    // Its snapshot finds one page of the disk, where it needs six.
    const last = start();
    await last.store.close();
    expect(readdirSync(folder).filter((name) => name.startsWith('draft'))).toEqual([]);
    start();
    expect(known.size).toBe(500);
    for (const store of stores.splice(0)) await store.close();
  } finally {
    execFileSync('umount', ['-l', folder]);
  }
});

it('removes a snapshot that an earlier process did not complete, and does not read it', () => {
  const { keep } = start();
  keep(selector(1));
  writeFileSync(join(folder, 'draft.99'), `${JSON.stringify(selector(9))}\n`);
  start();
  expect([...known.keys()]).toEqual([1]);
  expect(readdirSync(folder)).not.toContain('draft.99');
});

it('reads messages of their shape only', () => {
  expect(readToProxy('{"type":"complete"}')).toEqual({ type: 'complete' });
  expect(readToProxy('{"type":"identity","identity":5,"selectors":[1,2]}')).toBeDefined();
  for (const line of [
    '',
    'null',
    '[]',
    '{"type":"nothing"}',
    '{"type":"toString"}',
    '{"type":"identity","identity":5,"selectors":[2,1]}',
    '{"type":"identity","identity":5,"selectors":[]}',
    '{"type":"listener","listener":1,"names":["UPPER.com"]}',
    '{"type":"endpoint","endpoint":4294967296,"addresses":[]}',
  ])
    expect(readToProxy(line)).toBeUndefined();
  const name = { type: 'name', endpoint: 1, name: 'a.com', address: '192.0.2.1', seen: 1, expires: 2, ttl: 3 };
  expect(readKept(JSON.stringify(name))).toEqual(name);
  expect(readToProxy(JSON.stringify(name))).toBeUndefined();
});

it('reads each pattern that a policy may have: one that it did not read would end the connection for all', () => {
  const written = ['a..', '..', 'A.Example.com.', 'a..b', '.a', '*..', '**.', '**..com', 'x'.repeat(255)];
  for (const pattern of written.map(canonicalHostName))
    for (const message of [
      { type: 'listener', listener: 1, names: [pattern] },
      { type: 'selector', selector: 1, pattern },
      { type: 'forget', pattern },
    ])
      expect(readToProxy(JSON.stringify(message))).toEqual(message);
});
