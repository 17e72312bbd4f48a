/** An endpoint of which one policy is edited: its rules are compiled for those whom the edit concerns, from what they were compiled to before. */
import { expect, it } from '@jest/globals';
import { isLocalCidr } from '@weir/identity';
import { parsePrefix, prefixContains } from '@weir/net';
import type { ResolvedRule } from '@weir/policy';
import fc from 'fast-check';
import { runs } from '../../test/runs.ts';
import { APPS, freshLike, rule, settle, World } from './testing/model-world.ts';

const PREFIXES = ['198.51.0.0/16', '198.51.7.0/24', '198.51.100.7/32', '203.0.113.0/24', '0.0.0.0/0'];

/** Endpoint 1 of app a; pods of apps b and c are elsewhere. */
function world(): World {
  const made = new World();
  made.namespace();
  made.pod('a', 'a');
  made.endpoint(1, { pod: { namespace: 'ns', name: 'a', uid: 'u-a' } });
  for (const [at, app] of APPS.entries()) {
    made.peerSet(app, []);
    made.identity(256 + at, app);
  }
  return made;
}

const isWithin = (inner: string, outer: string): boolean => prefixContains(parsePrefix(outer), parsePrefix(inner));

const ingressOf = (of: World) => of.slots.get(of.states.get(1)?.slot ?? 0)?.compiled.ingress.classes ?? [];

it('leaves the classes of all others the same objects', async () => {
  const one = world();
  one.policy('outside', 1, [{ ...rule('a', undefined, 1), peers: PREFIXES.slice(0, 4).map((cidr) => ({ cidr })) }]);
  one.policy('pods', 1, [rule('a', 'b', 2)]);
  await settle(one);
  const before = ingressOf(one);
  one.policy('pods', 2, [{ ...rule('a', 'b', 2), ports: [{ protocol: 'TCP', from: 80, to: 80 }] }]);
  await settle(one);
  const after = ingressOf(one);
  expect(after).not.toEqual(before);
  expect(after.filter((known) => before.includes(known))).toHaveLength(before.length - 1);
});

it('comes to what a fresh agent computes where many CIDRs, its own and of others, are within the one that changes', async () => {
  const many = (app: string, third: number, count: number): ResolvedRule => ({
    ...rule(app, undefined, third),
    peers: Array.from({ length: count }, (_, at) => ({ cidr: `198.51.${third}.${at}/32` })),
  });
  const around: ResolvedRule = { ...rule('a', undefined, 9), verdict: 'deny', peers: [{ cidr: '198.51.0.0/16' }] };
  const grown = world();
  grown.policy('own', 1, [many('a', 1, 20)]);
  grown.policy('others', 1, [many('b', 2, 20)]);
  grown.policy('around', 1, [rule('a', 'b', 3)]);
  await settle(grown);
  for (const [at, rules] of [[rule('a', 'b', 3), around], [rule('a', 'b', 3)]].entries()) {
    grown.policy('around', 2 + at, rules);
    await settle(grown);
    expect(grown.result()).toEqual((await freshLike(grown)).result());
    const named = ingressOf(grown).flatMap(({ members }) => members.filter(isLocalCidr));
    expect(named).toHaveLength(rules.length === 2 ? 21 : 20);
  }
});

it('comes to what a fresh agent computes, whatever else changes in the same plan', async () => {
  const peer = fc.oneof(
    { weight: 3, arbitrary: fc.constantFrom(...APPS).map((app) => ({ peerSet: `hash-${app}` })) },
    {
      weight: 4,
      arbitrary: fc
        .record({ cidr: fc.constantFrom(...PREFIXES), except: fc.subarray(PREFIXES, { maxLength: 1 }) })
        .map(({ cidr, except }) => ({ cidr, except: except.filter((one) => isWithin(one, cidr)) })),
    },
    fc.constantFrom('world' as const, 'all' as const, 'cluster' as const).map((entity) => ({ entity })),
  );
  const someRule = fc
    .record({
      verdict: fc.constantFrom('allow' as const, 'allow' as const, 'deny' as const),
      direction: fc.constantFrom('ingress' as const, 'egress' as const),
      defaultDeny: fc.boolean(),
      peers: fc.array(peer, { maxLength: 3 }),
      port: fc.option(fc.integer({ min: 1, max: 3 })),
      cookie: fc.integer({ min: 1, max: 4 }),
    })
    .map(({ port, ...fields }): ResolvedRule => {
      const ports = port === null ? {} : { ports: [{ protocol: 'TCP' as const, from: port, to: port + 1 }] };
      return { subject: 'hash-a', path: 'spec', ...fields, ...ports };
    });
  const change = fc.oneof(
    {
      weight: 4,
      arbitrary: fc.record({ policy: fc.constantFrom('p', 'q', 'r'), rules: fc.array(someRule, { maxLength: 3 }) }),
    },
    { weight: 1, arbitrary: fc.record({ identity: fc.constantFrom(...APPS.keys()), app: fc.constantFrom(...APPS) }) },
  );
  await fc.assert(
    fc.asyncProperty(fc.array(fc.array(change, { minLength: 1, maxLength: 3 }), { maxLength: 8 }), async (rounds) => {
      const grown = world();
      await settle(grown);
      for (const [at, changes] of rounds.entries()) {
        for (const one of changes) {
          if ('policy' in one) grown.policy(one.policy, 1 + at, one.rules);
          // More pods than those of before: of the same app, or of another.
          else grown.identity(300 + one.identity, one.app);
        }
        await grown.plan();
      }
      await settle(grown);
      expect(grown.result()).toEqual((await freshLike(grown)).result());
    }),
    { numRuns: runs(200) },
  );
});
