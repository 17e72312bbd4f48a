/** How often is looked at links and pins, by default and in virtual time; what a look finds is in audit.test.ts. */
import { afterEach, beforeEach, expect, it, jest } from '@jest/globals';
import { auditRounds } from './audit-rounds.ts';

/** As docs/security.md promises. */
const LONGEST_MS = 5_000;

let looks: number[];
let passes: number;
let errors: number;
let stop: AbortController;
let failing: boolean;

beforeEach(() => {
  jest.useFakeTimers();
  [looks, passes, errors, stop, failing] = [[], 0, 0, new AbortController(), false];
});
afterEach(() => {
  stop.abort();
  jest.useRealTimers();
});

function start(lookMs = 0, passMs = 0): void {
  void auditRounds({
    look: async () => {
      looks.push(performance.now());
      if (failing) throw new Error('no');
      if (lookMs > 0) await new Promise((resolve) => setTimeout(resolve, lookMs));
    },
    compare: async () => {
      passes += 1;
      await new Promise((resolve) => setTimeout(resolve, passMs));
    },
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

it('also beside a long pass over what maps hold, of which the next begins 30 s after', async () => {
  start(0, 12_000);
  await jest.advanceTimersByTimeAsync(30_000 + 12_000 + 29_999);
  expect([passes, longest()]).toEqual([1, LONGEST_MS]);
  await jest.advanceTimersByTimeAsync(1);
  expect(passes).toBe(2);
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
