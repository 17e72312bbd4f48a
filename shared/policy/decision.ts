/**
 * How decisions compare. All code asks here; none takes "not denied" for "allowed".
 *
 * There are two orders. Rank (spec 5.1) is total and says whose decision holds where several rules hit. What passes is a partial order: `opens`.
 * Guarantee: a decision that beats another takes something away from it, `compareRank(a, b) < 0` implies `opens(b, a)`.
 */
import type { Decision, Listeners, Verdict } from './types.ts';

export const ALLOW: Decision = { verdict: 'allow' };
export const DENY: Decision = { verdict: 'deny' };

const RANK = { deny: 0, authenticate: 1, redirect: 2, allow: 3 } as const;

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

/** To a proxy that there is not. It outranks all that there are. */
export const NO_PROXY: Decision = { verdict: 'redirect', listener: { port: 0, priority: 1 } };
/** Rank of DNS rules among redirects (spec 5.1, item 3). */
const DNS_PRIORITY = 121;
/** Every name may be asked for. */
export const ANY_NAME: readonly string[] = ['*'];

/** Where no node is: there is no proxy. */
export const NO_LISTENERS: Listeners = { ofNames: () => 0, union: () => 0 };

/** What a rule decides of the flows that it hits. A verdict that this release does not know, from an operator of a later one, denies. */
export function decisionOfRule(
  { verdict, dns }: { readonly verdict: Verdict; readonly dns?: readonly string[] | undefined },
  listeners: Listeners,
): Decision {
  switch (verdict) {
    case 'allow':
      return ALLOW;
    case 'redirect': {
      const port = dns === undefined ? 0 : listeners.ofNames(dns);
      return port === 0 ? NO_PROXY : { verdict, listener: { port, priority: DNS_PRIORITY } };
    }
    case 'authenticate':
      return { verdict };
    default:
      return DENY;
  }
}

/** What both decide together of a flow: that of the higher rank; of two that ask one kind of proxy, what lets pass what either does. */
export function decidedByBoth(a: Decision, b: Decision, listeners: Listeners): Decision {
  const [first, other] = compareRank(a, b) <= 0 ? [a, b] : [b, a];
  if (first.verdict !== 'redirect' || other.verdict !== 'redirect') return first;
  const { port, priority } = first.listener;
  if (priority !== other.listener.priority || port === other.listener.port) return first;
  return { verdict: 'redirect', listener: { port: listeners.union(port, other.listener.port), priority } };
}
