import { describe, expect, it } from '@jest/globals';
import fc from 'fast-check';
import {
  ALLOW,
  compareRank,
  DENY,
  decisionKey,
  decisionOfRule,
  NO_LISTENERS,
  opens,
  sameDecision,
} from './decision.ts';
import { anyDecision } from './testing/decisions.ts';
import type { Decision, Verdict } from './types.ts';

const AUTHENTICATE: Decision = { verdict: 'authenticate' };
const redirect = (priority: number, port = 15_000): Decision => ({ verdict: 'redirect', listener: { port, priority } });

describe('of two decisions', () => {
  it('one beats the other by spec 5.1: deny, authenticate, redirect of the lowest priority, allow', () => {
    const ranked = [DENY, AUTHENTICATE, redirect(1), redirect(101), redirect(101, 15_001), redirect(121), ALLOW];
    expect(ranked.toReversed().sort(compareRank)).toEqual(ranked);
  });

  it.each<[string, Decision, Decision, boolean]>([
    ['allow over redirect', ALLOW, redirect(101), true],
    ['redirect over allow', redirect(101), ALLOW, false],
    ['redirect over deny', redirect(101), DENY, true],
    ['authenticate over deny', AUTHENTICATE, DENY, true],
    ['deny over redirect', DENY, redirect(101), false],
    ['one redirect over another', redirect(101, 15_000), redirect(101, 15_001), true],
    ['a redirect over itself', redirect(101), redirect(101), false],
    ['redirect over authenticate', redirect(101), AUTHENTICATE, true],
    ['authenticate over redirect', AUTHENTICATE, redirect(101), true],
  ])('%s: opens %s', (_, a, b, expected) => {
    expect(opens(a, b)).toBe(expected);
  });
});

it('ranks totally, and what beats another takes something away from it', () => {
  fc.assert(
    fc.property(anyDecision, anyDecision, anyDecision, (a, b, c) => {
      const [ab, bc] = [compareRank(a, b), compareRank(b, c)];
      expect(Math.sign(ab)).toBe(0 - Math.sign(compareRank(b, a)));
      if (ab <= 0 && bc <= 0) expect(compareRank(a, c)).toBeLessThanOrEqual(0);
      expect([ab === 0, decisionKey(a) === decisionKey(b)]).toEqual([sameDecision(a, b), sameDecision(a, b)]);
      // What passes is a partial order, with deny as its least and allow as its greatest.
      expect(opens(a, a) || opens(DENY, a) || opens(a, ALLOW)).toBe(false);
      expect(!opens(a, b) && !opens(b, a)).toBe(sameDecision(a, b));
      if (!opens(a, b) && !opens(b, c)) expect(opens(a, c)).toBe(false);
      if (ab < 0) expect(opens(b, a)).toBe(true);
    }),
  );
});

it('a verdict of a later release denies', () => {
  expect(
    ['allow', 'deny', 'pass'].map((verdict) => decisionOfRule({ verdict: verdict as Verdict }, NO_LISTENERS)),
  ).toEqual([ALLOW, DENY, DENY]);
});
