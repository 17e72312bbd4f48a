import { expect, it } from '@jest/globals';
import { policyRow } from '../kubernetes/rows.ts';
import { cnp, knp } from '../testing.ts';
import type { PolicyObjectKind } from '../types.ts';
import { TestModel } from './testing/test-model.ts';

const selector = { matchLabels: { app: 'web' } };

it.each<[PolicyObjectKind, object]>([
  [
    'CiliumNetworkPolicy',
    cnp('a/p', {
      endpointSelector: selector,
      egress: [{ toCIDR: ['fd00::/8'] }],
    }),
  ],
  [
    'NetworkPolicy',
    knp('a/p', {
      podSelector: selector,
      policyTypes: ['Egress'],
      egress: [{ to: [{ ipBlock: { cidr: 'fd00::/8' } }] }],
    }),
  ],
])('a %s about IPv6 is valid, with a warning, and is told of by no Event', (kind, object) => {
  const model = new TestModel({ cluster: 'default', identityGraceMs: 1_000_000, now: () => 1_700_000_000_000 });
  model.adoptionDone();
  model.setPolicy(policyRow(object as never, kind));
  const { statuses, events } = model.flush();
  const valid = statuses.flatMap(({ row }) => row?.status.conditions.filter(({ type }) => type === 'Valid') ?? []);
  expect(valid.map(({ status, reason, message }) => [status, reason, message.slice(0, 63)])).toEqual([
    ['True', 'Valid', 'The policy is valid. Warning: spec.egress[0]: all IPv6 from the'],
  ]);
  expect(events).toEqual([]);
});
