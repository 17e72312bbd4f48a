/**
 * How decisions compare. All code asks here; none takes "not denied" for "allowed".
 *
 * There are two orders. Rank (spec 5.1) is total and says whose decision holds where several rules hit. What passes is a partial order: `opens`.
 * Guarantee: a decision that beats another takes something away from it, `compareRank(a, b) < 0` implies `opens(b, a)`.
 */
import type { Decision, Verdict } from './types.ts';

export const ALLOW: Decision = { verdict: 'allow' };
export const DENY: Decision = { verdict: 'deny' };

/** A redirect beats an authentication, which is lost then: the listener must ask for it. */
const RANK = { deny: 0, redirect: 1, authenticate: 2, allow: 3 } as const;

/** Negative: `a` beats `b`. 0: they are the same. */
export function compareRank(a: Decision, b: Decision): number {
  if (a.verdict !== 'redirect' || b.verdict !== 'redirect') return RANK[a.verdict] - RANK[b.verdict];
  return a.listener.priority - b.listener.priority || a.listener.port - b.listener.port;
}

export function sameDecision(a: Decision, b: Decision): boolean {
  return compareRank(a, b) === 0;
}

/** Whether some flow passes by `a` in a way in which it does not by `b`. */
export function opens(a: Decision, b: Decision): boolean {
  return a.verdict !== 'deny' && b.verdict !== 'allow' && !sameDecision(a, b);
}

/** Equal keys = the same decision. Begins with no digit. */
export function decisionKey(decision: Decision): string {
  switch (decision.verdict) {
    case 'allow':
      return '+';
    case 'deny':
      return '-';
    case 'authenticate':
      return '?';
    case 'redirect':
      return `>${decision.listener.priority}:${decision.listener.port}`;
  }
}

/** What a rule decides of the flows that it hits. A verdict that this release does not know, from an operator of a later one, denies. */
export function decisionOfRule(verdict: Verdict): Decision {
  return verdict === 'allow' ? ALLOW : DENY;
}
