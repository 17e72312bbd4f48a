import { expect, it } from '@jest/globals';
import fc from 'fast-check';
import { compareRank, decidedByBoth } from './decision.ts';
import { BLANK, OPEN, type Painting, paintOver, type RankedRow, rowsOf, rowsOfRule, sameRows, textOf } from './rows.ts';
import { anyDecision } from './testing/decisions.ts';
import type { ClassRows, Decision, Listeners } from './types.ts';

const MOST = 12;
/** What lets pass what two do has the number with the bits of both. */
const LISTENERS: Listeners = { ofNames: () => 0, union: (one, other) => (one === 0 || other === 0 ? 0 : one | other) };

const decisionIn = (row: Decision): Decision =>
  row.verdict === 'redirect' ? { verdict: row.verdict, listener: row.listener } : { verdict: row.verdict };

const anyRule = fc
  .tuple(anyDecision, fc.integer({ min: 1, max: 4 }), fc.nat(MOST), fc.nat(MOST))
  .map(([decision, cookie, a, b]) => ({
    ...decision,
    cookie,
    ports: [{ protocol: 'TCP' as const, from: Math.min(a, b), to: Math.max(a, b) }],
  }));

/** By port of TCP: decision and cookie. */
function decided(rows: ClassRows): unknown[] {
  return Array.from({ length: MOST + 2 }, (_, port) => {
    const found = rows.filter(({ protocol, from, to }) => protocol === 6 && from <= port && port <= to);
    expect(found.length).toBeLessThan(2);
    return found.map(({ protocol: _protocol, from: _from, to: _to, ...rest }) => rest)[0];
  });
}

it('each port has the decision that beats all others of it, of the rule with the lowest cookie', () => {
  fc.assert(
    fc.property(fc.array(anyRule, { maxLength: 8 }), fc.boolean(), fc.nat(8), (rules, open, cut) => {
      const under = open ? OPEN : BLANK;
      const expected = Array.from({ length: MOST + 2 }, (_, port) => {
        const hits = rules.filter(({ ports }) => ports.some(({ from, to }) => from <= port && port <= to));
        const [best] = hits.sort((a, b) => compareRank(a, b) || a.cookie - b.cookie);
        if (best === undefined) return open ? { verdict: 'allow', cookie: 0 } : undefined;
        const { ports: _ports, ...rest } = best;
        const together = hits.filter(
          (hit) =>
            hit.verdict === 'redirect' &&
            best.verdict === 'redirect' &&
            hit.listener.priority === best.listener.priority,
        );
        const cookie = Math.min(...(together.length === 0 ? [best] : together).map((hit) => hit.cookie));
        return {
          ...rest,
          cookie,
          ...hits.reduce<Decision>((all, hit) => decidedByBoth(all, decisionIn(hit), LISTENERS), decisionIn(best)),
        };
      });
      const [first, second] = [rules.slice(0, cut), rules.slice(cut)].map((some) => some.flatMap(rowsOfRule));
      const over = (below: Painting, added: RankedRow[]): Painting => paintOver(below, added, undefined, LISTENERS);
      const rows = rowsOf(over(over(under, first ?? []), second ?? []));
      expect(decided(rows)).toEqual(expected);
      // The same again, in another order, and by rules that differ in nothing else.
      const again = rowsOf(over(under, rules.toReversed().flatMap(rowsOfRule)));
      expect([sameRows(rows, again), textOf(rows)]).toEqual([true, textOf(again)]);
    }),
  );
});

it('rows that differ in the decision alone are not the same', () => {
  fc.assert(
    fc.property(anyDecision, anyDecision, (a, b) => {
      const [one, other] = [a, b].map((decision) => rowsOfRule({ ...decision, cookie: 1 }));
      const same = compareRank(a, b) === 0;
      expect([sameRows(one ?? [], other ?? []), textOf(one ?? []) === textOf(other ?? [])]).toEqual([same, same]);
    }),
  );
});
