import { describe, expect, it } from '@jest/globals';
import fc from 'fast-check';
import { runs } from '../../test/runs.ts';
import {
  compile,
  evaluate,
  explain,
  type OraclePeer,
  oracleVerdict,
  type PortProtocol,
  parsePolicy,
  type Rule,
} from './index.ts';
import { Judge } from './testing/judge.ts';
import { namedTraffics, namedWorldArbitrary, namingPoliciesArbitrary } from './testing/named-ports.ts';
import { mixedPoliciesArbitrary, networkPolicyArbitrary } from './testing/network-policies.ts';
import {
  namingPolicyArbitrary,
  type PolicyObject,
  policiesArbitrary,
  SMALL_WORLD,
  SMALL_WORLD_PEERS,
  trafficArbitrary,
} from './testing/worlds.ts';

function rulesOf(policies: readonly PolicyObject[]): Rule[] {
  return policies.flatMap(({ object, kind }) => {
    const { rules, problems } = parsePolicy(object, kind, { stack: 'dual' });
    expect(problems.filter(({ code }) => code !== 'Warning')).toEqual([]);
    return rules;
  });
}

const optionsArbitrary = fc.record({
  mode: fc.constantFrom(
    'default' as const,
    'default' as const,
    'default' as const,
    'always' as const,
    'never' as const,
  ),
  allowLocalhost: fc.boolean(),
});
/** Found at random: pods that an ipBlock alone selects, by a port name. */
const byBlockAndName: PolicyObject = {
  kind: 'NetworkPolicy',
  object: {
    ...{ apiVersion: 'networking.k8s.io/v1', kind: 'NetworkPolicy', metadata: { name: 'p', namespace: 'a' } },
    spec: {
      ...{ podSelector: {}, policyTypes: ['Egress'] },
      egress: [
        {
          to: [{ ipBlock: { cidr: '0.0.0.0/0' } }, { podSelector: { matchLabels: { app: 'api' } } }],
          ports: [{ protocol: 'TCP', port: 'http' }],
        },
      ],
    },
  },
};
const trafficsArbitrary = fc.array(trafficArbitrary, { minLength: 1, maxLength: 4 });

describe('oracle, compiled policy and explanation', () => {
  it('agree on every peer of random worlds', () => {
    const reasons = new Set<string>();
    fc.assert(
      fc.property(
        fc.oneof(policiesArbitrary, mixedPoliciesArbitrary),
        optionsArbitrary,
        trafficsArbitrary,
        (policies, options, traffics) => {
          const judge = new Judge(SMALL_WORLD, rulesOf(policies), options);
          for (const subject of SMALL_WORLD.endpoints.slice(0, 4)) {
            for (const direction of ['ingress', 'egress'] as const) {
              for (const peer of SMALL_WORLD_PEERS) {
                for (const traffic of traffics) {
                  const { oracle, compiled, explained } = judge.ask({ direction, subject, peer, ...traffic });
                  const agreed =
                    compiled.verdict === oracle.verdict &&
                    explained.verdict === oracle.verdict &&
                    compiled.cookie === (explained.deciding[0]?.cookie ?? 0) &&
                    (compiled.by === 'not-enforced') === (oracle.reason === 'not-enforced');
                  reasons.add(oracle.reason);
                  if (!agreed)
                    expect({ subject: subject.name, direction, peer, traffic, oracle, compiled, explained }).toBe(
                      'agreed',
                    );
                }
              }
            }
          }
        },
      ),
      {
        numRuns: runs(400),
        examples: [
          [
            [byBlockAndName],
            { mode: 'default', allowLocalhost: false },
            [80, 81, 8080].map((port) => ({ protocol: 6, port })),
          ],
        ],
      },
    );
    // Every way to decide must have come up, or the property proves less than it says.
    expect([...reasons].sort()).toEqual([
      'explicit-deny',
      'localhost',
      'no-default-deny',
      'no-match',
      'not-enforced',
      'rule-allows',
    ]);
  });

  it('agree on port names, whatever numbers pods give them', () => {
    fc.assert(
      fc.property(namedWorldArbitrary, namingPoliciesArbitrary, (world, policies) => {
        const judge = new Judge(world, rulesOf(policies));
        const peers = SMALL_WORLD_PEERS.map((peer): OraclePeer => {
          const moved =
            peer.kind === 'endpoint' ? world.endpoints.find(({ name }) => name === peer.endpoint.name) : undefined;
          return moved === undefined ? peer : { kind: 'endpoint', endpoint: moved };
        });
        for (const subject of world.endpoints.slice(0, 3)) {
          for (const direction of ['ingress', 'egress'] as const) {
            for (const peer of peers) {
              for (const traffic of namedTraffics) {
                const { oracle, compiled, explained } = judge.ask({ direction, subject, peer, ...traffic });
                const agreed =
                  compiled.verdict === oracle.verdict &&
                  explained.verdict === oracle.verdict &&
                  compiled.cookie === (explained.deciding[0]?.cookie ?? 0);
                if (!agreed)
                  expect({ subject: subject.name, direction, peer, traffic, oracle, compiled, explained }).toBe(
                    'agreed',
                  );
              }
            }
          }
        }
      }),
      { numRuns: runs(150) },
    );
  });

  it('an unknown peer is never allowed what any pod, outside address or node is denied', () => {
    fc.assert(
      fc.property(
        fc.oneof(mixedPoliciesArbitrary, namingPoliciesArbitrary),
        fc.oneof(trafficArbitrary, fc.constantFrom(...namedTraffics)),
        (policies, traffic) => {
          const judge = new Judge(SMALL_WORLD, rulesOf(policies));
          for (const subject of SMALL_WORLD.endpoints.slice(0, 4)) {
            const compiled = judge.compiledFor(subject);
            for (const direction of ['ingress', 'egress'] as const) {
              const unknown = evaluate(compiled, { direction, identity: 0, ...traffic });
              if (unknown.verdict === 'deny') continue;
              const ids = new Set([300, 0x01abcdef, 0x03000001, 0x02000001, 12, 99]);
              for (const { members } of compiled[direction].classes) for (const id of members) ids.add(id);
              for (const identity of ids) {
                expect(evaluate(compiled, { direction, identity, ...traffic }).verdict).toBe('allow');
              }
            }
          }
        },
      ),
      { numRuns: runs(120) },
    );
  });
});

describe('NetworkPolicies and Cilium policies on one pod', () => {
  const networkPolicies = fc.array(networkPolicyArbitrary, { minLength: 1, maxLength: 2 });
  const ciliumPolicies = fc.array(namingPolicyArbitrary, { minLength: 1, maxLength: 2 });

  it('add up: what either allows is allowed, unless a Cilium policy denies it', () => {
    const seen = { onlyNetwork: 0, onlyCilium: 0, denied: 0, neither: 0 };
    fc.assert(
      fc.property(networkPolicies, ciliumPolicies, trafficsArbitrary, (network, cilium, traffics) => {
        const endpoints = SMALL_WORLD.endpoints;
        const byNetwork = rulesOf(network);
        const byCilium = rulesOf(cilium);
        for (const subject of endpoints.slice(0, 4)) {
          for (const direction of ['ingress', 'egress'] as const) {
            for (const peer of SMALL_WORLD_PEERS) {
              for (const traffic of traffics) {
                const ask = (rules: readonly Rule[]) =>
                  oracleVerdict(rules, direction, subject, peer, traffic, { endpoints, allowLocalhost: false });
                const [alone, other, both] = [ask(byNetwork), ask(byCilium), ask([...byNetwork, ...byCilium])];
                const denied = other.reason === 'explicit-deny';
                const isolated = [alone, other].some(({ reason }) => reason === 'no-match' || reason === 'rule-allows');
                const allowed = [alone, other].some(({ reason }) => reason === 'rule-allows');
                if (denied) seen.denied += 1;
                else if (alone.reason === 'rule-allows' && other.reason === 'no-match') seen.onlyNetwork += 1;
                else if (other.reason === 'rule-allows' && alone.reason === 'no-match') seen.onlyCilium += 1;
                else if (alone.reason === 'no-match' && other.reason === 'no-match') seen.neither += 1;
                expect(alone.reason).not.toBe('explicit-deny');
                if (denied) expect(both.verdict).toBe('deny');
                else if (allowed) expect(both.verdict).toBe('allow');
                else if (alone.reason === 'no-match' || other.reason === 'no-match') expect(both.verdict).toBe('deny');
                else if (!isolated) expect(both.verdict).toBe('allow');
              }
            }
          }
        }
      }),
      { numRuns: 60 },
    );
    for (const [how, count] of Object.entries(seen)) expect(`${how} ${count > 0}`).toBe(`${how} true`);
  });
});

describe('compile', () => {
  it('gives equal output for any order of its input', () => {
    fc.assert(
      fc.property(mixedPoliciesArbitrary, fc.infiniteStream(fc.nat()), (policies, random) => {
        const judge = new Judge(SMALL_WORLD, rulesOf(policies));
        const shuffle = <T>(items: Iterable<T>): T[] => {
          const rest = [...items];
          const out: T[] = [];
          while (rest.length > 0) out.push(...rest.splice((random.next().value ?? 0) % rest.length, 1));
          return out;
        };
        for (const subject of SMALL_WORLD.endpoints.slice(0, 2)) {
          const input = judge.inputFor(subject);
          const shuffled = {
            ...input,
            rules: shuffle(input.rules),
            identities: shuffle(input.identities),
            peerSets: {
              identities: (hash: string) => {
                const members = input.peerSets.identities(hash);
                return members === undefined ? undefined : shuffle(members);
              },
            },
            portNames: {
              own: (name: string, protocol: PortProtocol) => input.portNames?.own(name, protocol),
              peers: (name: string, protocol: PortProtocol) =>
                new Map(shuffle(input.portNames?.peers(name, protocol) ?? [])),
              addresses: (name: string, protocol: PortProtocol) =>
                shuffle(input.portNames?.addresses?.(name, protocol) ?? []),
            },
          };
          expect(compile(shuffled)).toEqual(compile(input));
        }
      }),
      { numRuns: runs(100) },
    );
  });

  it('makes canonical classes and rows', () => {
    fc.assert(
      fc.property(mixedPoliciesArbitrary, (policies) => {
        const judge = new Judge(SMALL_WORLD, rulesOf(policies));
        for (const subject of SMALL_WORLD.endpoints.slice(0, 2)) {
          const compiled = judge.compiledFor(subject);
          for (const direction of [compiled.ingress, compiled.egress]) {
            const members = direction.classes.flatMap((one) => one.members);
            expect(new Set(members).size).toBe(members.length);
            for (const one of direction.classes) expect(one.members).toEqual([...one.members].sort((a, b) => a - b));
            const firsts = direction.classes.map((one) => one.members[0] ?? -1);
            expect(firsts).toEqual([...firsts].sort((a, b) => a - b));
            const all = [...direction.classes.map((one) => one.rows), ...Object.values(direction.scope)];
            for (const rows of all) {
              rows.forEach((row, index) => {
                expect(row.from).toBeLessThanOrEqual(row.to);
                const before = rows[index - 1];
                if (before === undefined || before.protocol < row.protocol) return;
                expect(before.protocol).toBe(row.protocol);
                expect(before.to).toBeLessThan(row.from);
                const joined =
                  before.to + 1 === row.from && before.verdict === row.verdict && before.cookie === row.cookie;
                expect(joined).toBe(false);
              });
            }
          }
        }
      }),
      { numRuns: runs(100) },
    );
  });

  it('explains with the same contract errors', () => {
    const rules = [
      {
        subject: 's',
        direction: 'ingress',
        verdict: 'allow',
        peers: [{ peerSet: 'h' }],
        defaultDeny: true,
        cookie: 1,
        path: 'p',
      },
    ] as const;
    const peerSets = { identities: () => undefined };
    const base = { rules, peerSets, mode: 'default' as const };
    expect(() => compile({ ...base, identities: [] })).toThrow(
      expect.objectContaining({ code: 'ERR_WEIR_UNKNOWN_PEER_SET', hash: 'h' }),
    );
    expect(() => explain(base, { direction: 'ingress', peer: { id: 300 }, protocol: 6, port: 80 })).toThrow(
      expect.objectContaining({ code: 'ERR_WEIR_UNKNOWN_PEER_SET' }),
    );
  });
});
