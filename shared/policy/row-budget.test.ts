import { describe, expect, it } from '@jest/globals';
import { RESERVED_ID } from '@weir/identity';
import { portPrefixes } from '@weir/net';
import fc from 'fast-check';
import { type CompileInput, compile, compilePieces, evaluate, MOST_ROWS, parsePolicy } from './index.ts';
import { Judge } from './testing/judge.ts';
import { NameLists } from './testing/name-lists.ts';
import { mixedPoliciesArbitrary } from './testing/network-policies.ts';
import { SMALL_WORLD } from './testing/worlds.ts';
import type { CompiledDirection, ResolvedRule } from './types.ts';

const tcp = (port: number): Pick<ResolvedRule, 'ports'> => ({ ports: [{ protocol: 'TCP', from: port, to: port }] });
const address = (index: number): string => `198.18.${index >> 8}.${index & 255}/32`;
const rule = (cookie: number, fields: Partial<ResolvedRule>): ResolvedRule => ({
  subject: 's',
  direction: 'ingress',
  verdict: 'allow',
  defaultDeny: true,
  cookie,
  path: `spec.ingress[${cookie}]`,
  ...fields,
});
const times = <T>(count: number, of: (index: number) => T): T[] => Array.from({ length: count }, (_, at) => of(at));

/** So many rules by CIDR beside so many for everybody, each with a port of its own: each CIDR's class has a row of each. */
function square(cidrs: number, everybody = cidrs, fields: Partial<ResolvedRule> = {}): CompileInput {
  return {
    rules: [
      ...times(cidrs, (at) => rule(1 + at, { peers: [{ cidr: address(at) }], ...tcp(1000 + at), ...fields })),
      ...times(everybody, (at) => rule(100_000 + at, { ...tcp(20_000 + at), ...fields })),
    ],
    peerSets: { identities: () => undefined },
    identities: times(cidrs, (at) => ({ id: 0x01000000 + at, cidr: address(at) })),
    mode: 'default',
  };
}

/** Pieces that compiling takes. */
function stepsOf(input: CompileInput): number {
  const work = compilePieces(input);
  for (let steps = 1; ; steps += 1) if (work.next().done === true) return steps;
}

/** Rows of a direction, as the budget counts them. */
function rowsIn({ enforced, classes, scope, addresses }: CompiledDirection): number {
  const ofAddresses = new Set(addresses.map(({ rows }) => rows));
  const all = [...classes.map(({ rows }) => rows), scope.unknown, scope.pod, scope.world, ...ofAddresses];
  const blocks = all.map((rows) => rows.reduce((sum, { from, to }) => sum + portPrefixes(from, to).length, 0));
  return enforced ? blocks.reduce((sum, count) => sum + Math.max(1, count), addresses.length) : 0;
}

describe('the budget of rows', () => {
  it('closes the direction where peers and ports multiply, and says the limit, the rules, and the fix', () => {
    const { ingress, egress } = compile(square(2500));
    expect(ingress).toEqual({
      enforced: true,
      scope: { unknown: [], pod: [], world: [] },
      classes: [],
      addresses: [],
      excess: {
        message:
          `ingress needs more than ${MOST_ROWS} rows (ports of each class of peers): 5000 rules, 2500 of them for every peer; put peers that are to ` +
          'have the same ports into one rule, write ports that lie together as a range, or have fewer policies select the same pod',
      },
    });
    expect(egress.excess).toBeUndefined();
    expect(compile(square(300, 300, { direction: 'egress' })).egress.excess?.message).toMatch(/^egress needs/);
  });

  it('counts what the kernel is to hold: a range of ports as the blocks that it takes', () => {
    const most = { ...square(10, 0), mostRows: 10 };
    // The reserved identities' class and the three scopes take one each, though they have no rows.
    expect(compile({ ...most, mostRows: 13, allowLocalhost: false }).ingress.excess).toBeDefined();
    const fits = compile({ ...most, mostRows: 14, allowLocalhost: false }).ingress;
    expect([fits.classes.length, fits.excess]).toEqual([11, undefined]);
    const range = { ports: [{ protocol: 'TCP' as const, from: 1, to: 65_534 }] };
    const one = { ...square(0), rules: [rule(1, { peers: [], ...range }), rule(2, range)], allowLocalhost: false };
    // 30 blocks each of: unknown peers, pods, the world, reserved identities.
    expect(compile({ ...one, mostRows: 119 }).ingress.excess).toBeDefined();
    const all = compile({ ...one, mostRows: 120 }).ingress;
    expect([all.scope.pod.length, all.excess]).toEqual([1, undefined]);
  });

  it('is looked at while compiling: what exceeds it by far costs no more than what exceeds it by little', () => {
    // Beyond reading rules and peers, which grows with them.
    expect(stepsOf(square(2500)) - stepsOf({ ...square(2500), mostRows: 1 })).toBeLessThan(100);
  });

  it('has room for many peers of one rule, many rules of one port, or wide denies of many peers', () => {
    const peers = times(20_000, (at) => ({ cidr: address(at) }));
    const identities = times(20_000, (at) => ({ id: 0x01000000 + at, cidr: address(at) }));
    const ports = times(2500, (at) => rule(100_000 + at, tcp(20_000 + at)));
    const one = compile({ ...square(0), rules: [rule(1, { peers, ...tcp(80) }), ...ports], identities });
    expect(one.ingress.classes.map(({ rows }) => rows.length)).toContain(2501);
    const same = compile({ ...square(2500), rules: square(2500).rules.map((each) => ({ ...each, ...tcp(80) })) });
    expect(same.ingress.classes.at(-1)?.rows).toHaveLength(1);
    const blocked = square(2500, 200).rules.map((each) =>
      each.peers === undefined ? each : rule(each.cookie, { peers: each.peers, verdict: 'deny' }),
    );
    expect(compile({ ...square(2500), rules: blocked }).ingress.classes.at(-1)?.rows).toHaveLength(6);
  });

  it('bounds what there is to look at, too: peers of one rule that hold each other, with exceptions', () => {
    const cidrs = times(3000, (at) => ({ cidr: '198.18.0.0/15', except: [address(at)] }));
    const identities = times(3000, (at) => ({ id: 0x01000000 + at, cidr: address(at) }));
    const input = { ...square(0), rules: [rule(1, { peers: cidrs })], identities };
    const { excess } = compile(input).ingress;
    expect(excess?.message).toContain('times');
    // What others name within costs nothing.
    const few = cidrs.slice(0, 100);
    expect(compile({ ...input, rules: [rule(1, { peers: few })] }).ingress.classes.length).toBeLessThan(4);
  });

  it('bounds what there is to look at, too: names of ports that each peer gives numbers of its own', () => {
    const names = times(40, (at) => ({ protocol: 'TCP' as const, name: `n${at}` }));
    const rules = times(1000, (at) => rule(1 + at, { direction: 'egress', ports: names }));
    const numbers = new Map(times(500, (at) => [256 + at, [1 + at]]));
    const peers = (name: string) => (name === 'n0' ? numbers : new Map<number, readonly number[]>());
    const { egress } = compile({ ...square(0), rules, portNames: { own: () => undefined, peers } });
    expect(egress.excess?.message).toContain('times');
  });

  describe('of names', () => {
    const asks = (cookie: number, dns: readonly string[], to = '0.0.0.0/0'): ResolvedRule =>
      rule(cookie, { direction: 'egress', verdict: 'redirect', dns, peers: [{ cidr: to }], ...tcp(53) });
    const compiled = (rules: readonly ResolvedRule[], identities: CompileInput['identities'] = []): CompiledDirection =>
      compile({ ...square(0), rules, identities, listeners: new NameLists() }).egress;

    it('closes a direction with more patterns than a question is to be held against', () => {
      const patterns = times(1001, (at) => `*.n${at}.io`);
      const [first = '', ...others] = patterns;
      expect(
        compiled([
          asks(1, others),
          asks(
            2,
            times(5000, (at) => `n${at}.io`),
          ),
        ]).excess,
      ).toBeUndefined();
      const closed = compiled([
        asks(1, others),
        rule(2, { direction: 'egress', peers: [{ fqdn: first }], ...tcp(443) }),
      ]);
      expect(closed).toMatchObject({ enforced: true, classes: [] });
      expect(closed.excess?.message).toBe(
        'egress needs more than 1000 patterns of host names with *: 2 rules, 0 of them for every peer; write one pattern for many names, ' +
          'or have fewer policies select the same pod',
      );
    });

    it('closes a direction with more lists of names than it may have, those of several rules together too', () => {
      const identities = times(257, (at) => ({ id: 0x01000000 + at, cidr: address(at) }));
      const alone = (at: number) => asks(1 + at, [`n${at}.io`], address(at));
      expect(compiled(times(256, alone), identities.slice(0, 256)).excess).toBeUndefined();
      expect(compiled(times(257, alone), identities).excess?.message).toMatch(
        /^egress needs more than 256 lists of names/,
      );
      // Two lists for each peer make a third.
      const beside = (at: number) => ({ ...asks(500 + at, [`m${at}.io`], address(at)), path: 'spec.egress[1]' });
      const pairs = (count: number) => times(count, (at) => [alone(at), beside(at)]).flat();
      expect(compiled(pairs(85), identities.slice(0, 85)).excess).toBeUndefined();
      expect(compiled(pairs(86), identities.slice(0, 86)).excess).toBeDefined();
    });
  });

  it('shares the rows that classes have in common', () => {
    const { classes } = compile(square(100)).ingress;
    const objects = new Set(classes.flatMap(({ rows }) => rows));
    expect(classes.flatMap(({ rows }) => rows).length).toBeGreaterThan(10_000);
    expect(objects.size).toBeLessThan(400);
  });

  it('never lets through what the rules do not, counts right, and changes nothing where everything fits', () => {
    const seen = { beyond: 0, same: 0, denied: 0 };
    fc.assert(
      fc.property(mixedPoliciesArbitrary, fc.oneof(fc.nat(40), fc.nat(600)), (policies, mostRows) => {
        const judge = new Judge(
          SMALL_WORLD,
          policies.flatMap(({ object, kind }) => parsePolicy(object, kind, { stack: 'dual' }).rules),
        );
        for (const subject of SMALL_WORLD.endpoints.slice(0, 2)) {
          const input = judge.inputFor(subject);
          const unlimited = compile(input);
          const limited = compile({ ...input, mostRows });
          for (const direction of ['ingress', 'egress'] as const) {
            const [all, some] = [unlimited[direction], limited[direction]];
            if (rowsIn(all) <= mostRows) {
              seen.same += 1;
              expect(some).toEqual(all);
              continue;
            }
            seen.beyond += 1;
            expect(some).toMatchObject({ enforced: true, classes: [], excess: {} });
            const ids = new Set([
              RESERVED_ID.unknown,
              700,
              0x01ffffff,
              ...all.classes.flatMap(({ members }) => members),
            ]);
            const ports = [...all.classes.flatMap(({ rows }) => rows), ...all.scope.pod, ...all.scope.world];
            for (const identity of ids)
              for (const { protocol, from: port } of ports) {
                const flow = { direction, identity, protocol, port };
                const [whole, less] = [unlimited, limited].map((compiled) => evaluate(compiled, flow).verdict);
                if (whole === less) continue;
                expect([whole, less]).toEqual(['allow', 'deny']);
                seen.denied += 1;
              }
          }
        }
      }),
      { numRuns: 100 },
    );
    expect(Math.min(seen.beyond, seen.same, seen.denied)).toBeGreaterThan(20);
  });
});
