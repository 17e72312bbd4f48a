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
  const content = { elements: { ingress: numbers, egress: none }, rows: { ingress: rows, egress: none } };
  const slot = new SlotSummary(content, () => undefined);
  const { allowed, denied, l4 } = slot.of('ingress');
  expect({ allowed, denied }).toEqual({ allowed: [318], denied: [319] });
  expect(l4.map(({ rule }) => JSON.parse(rule) as unknown)).toEqual([
    { port: 80, protocol: 'TCP', verdict: 'redirect', listener: { port: 15_000, priority: 101 } },
    { port: 81, protocol: 'TCP', verdict: 'authenticate' },
    { port: 82, protocol: 'TCP', verdict: 'allow' },
    { port: 83, protocol: 'TCP', verdict: 'deny' },
  ]);
});

it('names the rules that decide a port, whatever their class, by their labels', () => {
  const block = (port: number, cookie: number): VerdictBlock => ({
    protocol: 6,
    port,
    bits: 16,
    cookie,
    verdict: 'allow',
  });
  const rows = new Map([
    [16, [block(80, 7), block(443, 9)]],
    [17, [block(80, 8)]],
    [18, [block(80, 7), block(81, 0)]],
  ]);
  const none = new Map<number, never>();
  const content = { elements: { ingress: none, egress: none }, rows: { ingress: rows, egress: none } };
  const labels = new Map([7, 8].map((cookie) => [cookie, [`k8s:io.cilium.k8s.policy.name=p${cookie}`]]));
  const slot = new SlotSummary(content, (cookie) => labels.get(cookie));
  const found = slot
    .of('ingress')
    .l4.map(({ rule, ...from }) => [JSON.parse(rule).port as number, from['derived-from-rules']]);
  const [seven, eight] = [labels.get(7), labels.get(8)];
  expect(found).toEqual([
    [443, []],
    [80, [seven, eight]],
    [81, []],
  ]);
});
