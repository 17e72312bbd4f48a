/** Test helper: random things that happen to a cluster. */
import fc from 'fast-check';
import type { Step } from './story.ts';

const apps = fc.subarray(['x', 'y', 'z'], { minLength: 1 });
const selector = fc.oneof(
  { weight: 4, arbitrary: apps.map((values) => ({ matchExpressions: [{ key: 'app', operator: 'In', values }] })) },
  { weight: 1, arbitrary: apps.map((values) => ({ matchExpressions: [{ key: 'app', operator: 'NotIn', values }] })) },
  { weight: 1, arbitrary: fc.constantFrom('x', 'y', 'z').map((app) => ({ matchLabels: { app } })) },
  { weight: 1, arbitrary: fc.constant({ matchLabels: { version: '1' } }) },
  { weight: 1, arbitrary: fc.constant({}) },
);
const toPorts = fc.option(fc.constant([{ ports: [{ port: '80', protocol: 'TCP' }] }]), { nil: undefined });
const spec = fc
  .record({
    subject: selector,
    peer: selector,
    member: fc.constantFrom('ingress', 'ingressDeny', 'ingressDeny', 'egress', 'egressDeny'),
    toPorts,
    open: fc.boolean(),
  })
  .map(({ subject, peer, member, toPorts: ports, open }) => {
    const from = member.startsWith('ingress') ? 'fromEndpoints' : 'toEndpoints';
    const element = { [from]: [peer], ...(ports === undefined ? {} : { toPorts: ports }) };
    const all = { [member.slice(0, member.startsWith('ingress') ? 7 : 6)]: [{ [from]: [{}] }] };
    return { endpointSelector: subject, ...(open ? all : {}), [member]: [element] };
  });
const kinds = fc.oneof(
  { weight: 3, arbitrary: fc.subarray([0, 1, 2, 3, 4, 5, 6, 7], { minLength: 1 }) },
  { weight: 1, arbitrary: fc.constant([0, 1, 2, 3, 4, 5, 6, 7]) },
);
/** Watches of an agent whose lists come later. */
const late = fc.oneof(fc.constant([]), fc.subarray([0, 1, 2, 3, 4, 5], { minLength: 1, maxLength: 2 }));
const count = fc.constantFrom(1, 2, 10);
const agent = fc.nat(1);
const pod = fc.record({
  do: fc.constant('pod' as const),
  pod: fc.nat(3),
  app: fc.constantFrom('x', 'y', 'z'),
  version: fc.nat(2),
});
export const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 4, arbitrary: fc.record({ do: fc.constant('policy' as const), policy: fc.nat(2), spec }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('delete-policy' as const), policy: fc.nat(2) }) },
  { weight: 5, arbitrary: pod },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('delete-pod' as const), pod: fc.nat(3) }) },
  { weight: 8, arbitrary: fc.record({ do: fc.constant('operator' as const), kinds, count }) },
  { weight: 1, arbitrary: fc.constant<Step>({ do: 'collect' }) },
  { weight: 1, arbitrary: fc.constant<Step>({ do: 'restart-operator' }) },
  {
    weight: 14,
    arbitrary: fc.record({
      do: fc.constant('answer' as const),
      which: fc.nat(7),
      how: fc.constantFrom('ok' as const, 'ok' as const, 'ok' as const, 'failed' as const, 'lost' as const),
      times: fc.integer({ min: 1, max: 6 }),
    }),
  },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('wait' as const), ms: fc.constantFrom(50, 500, 5_000) }) },
  { weight: 14, arbitrary: fc.record({ do: fc.constant('agent' as const), agent, kinds, count }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('restart-agent' as const), agent, late }) },
);

const ALL = [0, 1, 2, 3, 4, 5, 6, 7] as const;
const OPERATOR: readonly Step[] = [
  { do: 'operator', kinds: ALL, count: Infinity },
  { do: 'answer', which: 0, how: 'ok', times: 50 },
];

/** An agent starts and is not told of one kind for a while, in which pods change and it hears of them: sooner or later, and each thing or not. */
export const deafStart: fc.Arbitrary<readonly Step[]> = fc
  .record({
    agent,
    late: fc.constantFrom(0, 2, 3, 5),
    meanwhile: fc.array(fc.tuple(pod, fc.boolean()), { minLength: 1, maxLength: 3 }),
    after: fc.array(
      fc.record({ change: pod, hears: fc.oneof(kinds, fc.constant(ALL)), ms: fc.constantFrom(0, 500, 5_000) }),
      { minLength: 1, maxLength: 4 },
    ),
  })
  .map(({ agent: which, late: deaf, meanwhile, after }): readonly Step[] => {
    const heard = (kindsOf: readonly number[]): Step => ({
      do: 'agent',
      agent: which,
      kinds: kindsOf.filter((kind) => kind !== deaf),
      count: Infinity,
    });
    return [
      ...meanwhile.flatMap(([change, written]): readonly Step[] => [
        change,
        ...(written ? [...OPERATOR, ...OPERATOR] : []),
      ]),
      { do: 'restart-agent', agent: which, late: [deaf] },
      { do: 'wait', ms: 5_000 },
      heard([]),
      ...after.flatMap(({ change, hears, ms }): readonly Step[] => [
        change,
        ...OPERATOR,
        ...OPERATOR,
        { do: 'wait', ms },
        heard(hears),
      ]),
    ];
  });
