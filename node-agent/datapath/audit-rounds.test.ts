/** How often is looked at links and pins, by default and in virtual time; what a look finds is in audit.test.ts. */
import { afterEach, beforeEach, expect, it, jest } from '@jest/globals';
import type { StepResult } from './audit.ts';
import { auditRounds } from './audit-rounds.ts';

/** As docs/security.md promises; a step of comparing may be under way. */
const LONGEST_MS = 5_000 + 5;

let looks: number[];
let steps: number;
let errors: number;
let stop: AbortController;
let result: StepResult;
let failing: boolean;

beforeEach(() => {
  jest.useFakeTimers();
  [looks, steps, errors, stop, result, failing] = [[], 0, 0, new AbortController(), 'ended', false];
});
afterEach(() => {
  stop.abort();
  jest.useRealTimers();
});

function start(lookMs = 0): void {
  void auditRounds({
    look: async () => {
      looks.push(performance.now());
      if (failing) throw new Error('no');
      if (lookMs > 0) await new Promise((resolve) => setTimeout(resolve, lookMs));
    },
    step: async () => {
      steps += 1;
      return result;
    },
    exclusively: (job) => job(),
    onError: () => {
      errors += 1;
    },
    signal: stop.signal,
  });
}

const longest = (): number => Math.max(...looks.map((at, index) => at - (looks[index - 1] ?? 0)));

it('what is removed at any moment is looked at within 5 s', async () => {
  start();
  await jest.advanceTimersByTimeAsync(61_000);
  expect(looks).toHaveLength(12);
  expect(longest()).toBeLessThanOrEqual(LONGEST_MS);
});

it('also while a turn of comparing is under way, which finds something each time', async () => {
  result = 'mended';
  start();
  await jest.advanceTimersByTimeAsync(21_000);
  expect(steps).toBeGreaterThan(100);
  expect(longest()).toBeLessThanOrEqual(LONGEST_MS);
  expect(looks).toHaveLength(4);
});

it('also after looks that fail, and the time of a slow one comes on top', async () => {
  failing = true;
  start();
  await jest.advanceTimersByTimeAsync(21_000);
  expect([looks.length, errors]).toEqual([4, 4]);
  stop.abort();
  [looks, stop, failing] = [[], new AbortController(), false];
  start(700);
  await jest.advanceTimersByTimeAsync(17_000);
  expect(looks.slice(1).map((at, index) => Math.round((at - (looks[index] ?? 0)) / 10))).toEqual([570, 570]);
});
