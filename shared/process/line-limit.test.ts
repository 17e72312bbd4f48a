import { afterEach, beforeEach, expect, it } from '@jest/globals';
import { eventually } from '../../test/eventually.ts';
import { LineLimit } from './line-limit.ts';

const HOUR_MS = 3_600_000;

let limit: LineLimit;
let told: string[];

function create(perMs: number): void {
  told = [];
  limit = new LineLimit({ most: 2, perMs, onLeftOut: (key, lines) => told.push(`${key} ${lines}`) });
}
beforeEach(() => create(HOUR_MS));
afterEach(() => limit.stop());

const admitted = (...keys: string[]) => keys.map((key) => limit.admits(key));

it('admits so many lines of each key, and tells at the end how many were left out', () => {
  expect(admitted('a', 'a', 'a', 'a', 'b')).toEqual([true, true, false, false, true]);
  expect(told).toEqual([]);
  limit.stop();
  expect(told).toEqual(['a 2']);
});

it('begins anew after a window, for each key, and tells then what was left out of it', async () => {
  create(10);
  expect(admitted('a', 'a', 'a', 'b')).toEqual([true, true, false, true]);
  await eventually(
    async () => told,
    (lines) => lines.length > 0,
  );
  expect(told).toEqual(['a 1']);
  expect(admitted('a', 'a', 'a')).toEqual([true, true, false]);
  limit.stop();
  limit.stop();
  expect(told).toEqual(['a 1', 'a 1']);
});
