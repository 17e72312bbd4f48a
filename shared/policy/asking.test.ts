/**
 * Elements that ask for a proxy or for authentication, which Weir has not: their flows are denied, also where a plain allow hits them, but those that a proxy
 * would let through whatever its rules (spec 5.1, item 4, and 2.7).
 */
import { describe, expect, it } from '@jest/globals';
import fc from 'fast-check';
import { runs } from '../../test/runs.ts';
import {
  type Decision,
  type Explanation,
  type OraclePeer,
  type ParseResult,
  parsePolicy,
  type Verdict,
} from './index.ts';
import { type AskingKind, askingPolicyArbitrary, askingPolicyOf } from './testing/asking.ts';
import { Judge } from './testing/judge.ts';
import { egress, found, ingress } from './testing/parsed.ts';
import { SMALL_WORLD, SMALL_WORLD_PEERS } from './testing/worlds.ts';

const HTTP = { rules: { http: [{ method: 'GET' }] } };
const verdicts = ({ rules }: ParseResult) =>
  rules.flatMap(({ elements }) => elements).map(({ verdict, path, ports }) => ({ verdict, path, ports }));
const tcp = (...ports: number[]) => ports.map((port) => ({ protocol: 'TCP', from: port, to: port }));
const written = (...ports: number[]) => ports.map((port) => ({ port: `${port}`, protocol: 'TCP' }));

describe('an element', () => {
  it('asks by the ports that do, and allows the others', () => {
    const result = ingress({
      fromEntities: ['world'],
      toPorts: [
        { ports: written(80), ...HTTP },
        { ports: written(81) },
        { ports: written(443), serverNames: ['x.org'] },
      ],
    });
    expect(found(result)).toHaveLength(2);
    expect(verdicts(result)).toEqual([
      { verdict: 'allow', path: 'spec.ingress[0]', ports: tcp(81) },
      { verdict: 'redirect', path: 'spec.ingress[0].toPorts[0]', ports: tcp(80) },
      { verdict: 'redirect', path: 'spec.ingress[0].toPorts[2]', ports: tcp(443) },
    ]);
  });

  it('asks for authentication with all its ports', () => {
    const authentication = { mode: 'required' };
    const both = egress({ toEntities: ['world'], toPorts: [{ ports: written(80), ...HTTP }], authentication });
    expect(verdicts(both)).toEqual([{ verdict: 'authenticate', path: 'spec.egress[0].toPorts[0]', ports: tcp(80) }]);
    expect(verdicts(egress({ toEntities: ['world'], authentication }))).toEqual([
      { verdict: 'authenticate', path: 'spec.egress[0]', ports: 'any' },
    ]);
  });
});

const NAMES = [['x.io'], ['y.io', 'x.org']] as const;
const PEERS: readonly OraclePeer[] = [
  ...SMALL_WORLD_PEERS,
  ...SMALL_WORLD_PEERS.flatMap((peer) =>
    peer.kind === 'outside' ? NAMES.map((names) => ({ ...peer, names })) : [],
  ).slice(0, 4),
];

/** Of an address that has names, rules that decide alike by the one and by the other are not in the order of the explanation. */
function isNamed({ deciding, outranked }: Explanation, cookie: number, hasNames: boolean): boolean {
  if (!hasNames) return cookie === (deciding[0]?.cookie ?? 0);
  return cookie === 0 ? deciding.length === 0 : [...deciding, ...outranked].some((rule) => rule.cookie === cookie);
}

function namesOf(judge: Judge, decision: Decision): string {
  const port = decision.verdict === 'redirect' ? decision.listener.port : 0;
  return String(port === 0 ? undefined : judge.listeners.names(port));
}

const OPEN_EGRESS = { ingress: [], deny: null, defaultDeny: { ingress: false, egress: false } };
const WEB = { peer: { toCIDR: ['10.0.0.0/8'] }, ports: [{ port: '80', protocol: 'TCP' }] };
/** An allow frees what asks for no known proxy, where nothing is denied by default, and a DNS rule hits the flow, too. */
const FREED_BESIDE_DNS: Parameters<typeof askingPolicyOf>[0][] = [
  { ...OPEN_EGRESS, egress: [{ ...WEB, kind: 'plain' }] },
  {
    ...OPEN_EGRESS,
    egress: [
      { ...WEB, kind: 'http' },
      { ...WEB, peer: {}, kind: 'more-dns' },
    ],
  },
];

describe('oracle, compiled policy and explanation', () => {
  it('agree on what asks, and nothing is more allowed than if it asked for nothing', () => {
    const reasons = new Set<string>();
    fc.assert(
      fc.property(
        fc.array(askingPolicyArbitrary, { minLength: 1, maxLength: 3 }),
        fc.constantFrom('default' as const, 'default' as const, 'always' as const),
        fc.boolean(),
        (policies, mode, allowLocalhost) => {
          const judgeOf = (as: (kind: AskingKind) => AskingKind): Judge => {
            const rules = policies.flatMap((policy) => {
              const { object, kind } = askingPolicyOf(policy, as);
              return parsePolicy(object, kind, { stack: 'dual' }).rules;
            });
            return new Judge(SMALL_WORLD, rules, { mode, allowLocalhost, names: NAMES });
          };
          const [judge, plain] = [judgeOf((kind) => kind), judgeOf(() => 'plain')];
          for (const subject of SMALL_WORLD.endpoints.slice(0, 3)) {
            for (const direction of ['ingress', 'egress'] as const) {
              for (const peer of PEERS) {
                for (const port of [80, 81, 443]) {
                  const question = { direction, subject, peer, protocol: 6, port };
                  const { oracle, compiled, explained } = judge.ask(question);
                  reasons.add(oracle.reason);
                  const agreed =
                    compiled.verdict === oracle.verdict &&
                    explained.verdict === oracle.verdict &&
                    explained.reason === oracle.reason &&
                    isNamed(explained, compiled.cookie, 'names' in peer) &&
                    namesOf(judge, compiled) === String(oracle.dns) &&
                    String(explained.dns) === String(oracle.dns);
                  const meant: Verdict = plain.ask(question).oracle.verdict;
                  if (!agreed || ((oracle.verdict === 'allow' || oracle.reason === 'asks-names') && meant !== 'allow'))
                    expect({ subject: subject.name, direction, peer, port, oracle, compiled, explained, meant }).toBe(
                      'agreed',
                    );
                }
              }
            }
          }
        },
      ),
      { numRuns: runs(600), examples: [[FREED_BESIDE_DNS, 'default', false]] },
    );
    expect([...reasons]).toEqual(
      expect.arrayContaining(['asks-proxy', 'asks-names', 'asks-authentication', 'rule-allows', 'explicit-deny']),
    );
  });
});
