import { expect, it } from '@jest/globals';
import type { VerdictBlock } from '../tables.ts';
import { SlotSummary } from './endpoint-model.ts';

it('tells a redirect from an allow and from a deny', () => {
  const block = (port: number) => ({ protocol: 6, port, bits: 16, cookie: 1 });
  const rows = new Map<number, readonly VerdictBlock[]>([
    [16, [{ ...block(80), verdict: 'redirect', listener: { port: 15_000, priority: 101 } }]],
    [17, [{ ...block(81), verdict: 'authenticate' }]],
    [18, [{ ...block(82), verdict: 'allow' }]],
    [19, [{ ...block(83), verdict: 'deny' }]],
  ]);
  const numbers = new Map([...rows.keys()].map((number) => [300 + number, number]));
  const none = new Map<number, never>();
  const slot = new SlotSummary({
    elements: { ingress: numbers, egress: none },
    rows: { ingress: rows, egress: none },
  });
  const { allowed, denied, l4 } = slot.of('ingress');
  expect({ allowed, denied }).toEqual({ allowed: [318], denied: [319] });
  expect(l4.map(({ rule }) => JSON.parse(rule) as unknown)).toEqual([
    { port: 80, protocol: 'TCP', verdict: 'redirect', listener: { port: 15_000, priority: 101 } },
    { port: 81, protocol: 'TCP', verdict: 'authenticate' },
    { port: 82, protocol: 'TCP', verdict: 'allow' },
    { port: 83, protocol: 'TCP', verdict: 'deny' },
  ]);
});
