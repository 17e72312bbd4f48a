import { expect, it } from '@jest/globals';
import { policyRow } from '../kubernetes/rows.ts';
import { cnp, knp } from '../testing.ts';
import type { PolicyObjectKind } from '../types.ts';
import { TestModel } from './testing/test-model.ts';

const selector = { matchLabels: { app: 'web' } };

it.each<[PolicyObjectKind, object, string]>([
  [
    'CiliumNetworkPolicy',
    cnp('a/p', {
      endpointSelector: selector,
      egress: [{ toPorts: [{ ports: [{ port: '80', endPort: 70 }] }] }],
    }),
    'spec.egress[0].toPorts[0].ports[0].endPort: 70 is less',
  ],
  [
    'NetworkPolicy',
    knp('a/p', {
      podSelector: selector,
      policyTypes: ['Egress'],
      ingress: [{}],
    }),
    'spec.ingress: these rules have no effect',
  ],
])(
  'a %s that does not do what it seems to say is valid, with a warning, and is told of by no Event',
  (kind, object, warning) => {
    const model = new TestModel({ cluster: 'default', identityGraceMs: 1_000_000, now: () => 1_700_000_000_000 });
    model.adoptionDone();
    model.setPolicy(policyRow(object as never, kind));
    const { statuses, events } = model.flush();
    const valid = statuses.flatMap(({ row }) => row?.status.conditions.filter(({ type }) => type === 'Valid') ?? []);
    expect(valid.map(({ status, reason }) => [status, reason])).toEqual([['True', 'Valid']]);
    expect(valid[0]?.message).toContain(`The policy is valid. Warning: ${warning}`);
    expect(events).toEqual([]);
  },
);
