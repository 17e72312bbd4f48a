/** What `policy diff` tells is all that changes, and nothing else: on random policies, flow by flow. */
import { describe, expect, it } from '@jest/globals';
import { labelsKey } from '@weir/labels';
import { addressIn, parseAddress, parsePrefix } from '@weir/net';
import {
  type OracleEndpoint,
  type OracleWorld,
  oracleVerdict,
  PROTOCOL_NUMBERS,
  parsePolicy,
  passes,
  type Rule,
} from '@weir/policy';
import {
  OUTSIDE_ADDRESSES,
  type PolicyObject,
  policiesArbitrary,
  SMALL_WORLD,
  trafficArbitrary,
} from '@weir/policy/testing/worlds.ts';
import fc from 'fast-check';
import { otherParties, podParties } from './diff-universe.ts';
import { diffPolicies, type FlowChange } from './policy-diff.ts';
import type { FileWorld } from './world.ts';

const WORLD: FileWorld = {
  ...SMALL_WORLD,
  pods: new Map(SMALL_WORLD.endpoints.map((endpoint) => [endpoint.name, endpoint])),
  hostPods: new Map(),
  referents: { stack: 'dual' },
  serviceAddresses: new Map(),
  unknownNamespaces: [],
};

const rulesOf = (policies: readonly PolicyObject[]): readonly Rule[] =>
  policies.flatMap(({ object, kind }) => parsePolicy(object, kind, { stack: 'dual' }).rules);

type Peer = { readonly endpoint: OracleEndpoint } | { readonly address: string };

/** The name that the comparison has for it. */
function nameOf(peer: Peer, rules: readonly Rule[]): string {
  if ('endpoint' in peer) {
    const key = ({ labels, namedPorts }: OracleEndpoint) => JSON.stringify([labelsKey(labels), namedPorts]);
    return podParties(WORLD, rules).find(({ endpoint }) => key(endpoint) === key(peer.endpoint))?.name ?? '';
  }
  const { bytes, family } = parseAddress(peer.address);
  const cidrs = otherParties(rules).flatMap(({ name, peer }) =>
    peer.kind === 'outside' && name.includes('/') ? [{ name, prefix: parsePrefix(name) }] : [],
  );
  const around = cidrs.filter(({ prefix }) => prefix.family === family && addressIn(prefix, bytes));
  return around.sort((a, b) => b.prefix.bits - a.prefix.bits)[0]?.name ?? (family === 4 ? 'world' : 'world (IPv6)');
}

function isAllowed(
  rules: readonly Rule[],
  source: Peer,
  destination: Peer,
  traffic: { protocol: number; port: number },
): boolean {
  const { endpoints }: OracleWorld = SMALL_WORLD;
  const at = (direction: 'ingress' | 'egress', own: Peer, other: Peer): boolean => {
    if (!('endpoint' in own)) return true;
    const peer =
      'endpoint' in other ? ({ kind: 'endpoint', ...other } as const) : ({ kind: 'outside', ...other } as const);
    return passes(oracleVerdict(rules, direction, own.endpoint, peer, traffic, { endpoints }));
  };
  return at('egress', source, destination) && at('ingress', destination, source);
}

function covers({ ports }: FlowChange, protocol: number, port: number): boolean {
  if (ports === 'everything') return true;
  return ports.split('; ').some((text) => {
    const [name = '', ...ranges] = text.split(/,? /);
    if ((PROTOCOL_NUMBERS as Readonly<Record<string, number>>)[name] !== protocol) return false;
    return (
      ranges.length === 0 ||
      ranges.some((range) => {
        const [from = '', to = from] = range.split('-');
        return Number(from) <= port && port <= Number(to);
      })
    );
  });
}

const podArbitrary = fc.constantFrom(...SMALL_WORLD.endpoints).map((endpoint): Peer => ({ endpoint }));
const peerArbitrary = fc.oneof(
  podArbitrary,
  fc.constantFrom(...OUTSIDE_ADDRESSES).map((address): Peer => ({ address })),
);

describe('policy diff', () => {
  it('tells all flows that change, and no other', () => {
    const seen = { changed: 0, same: 0 };
    fc.assert(
      fc.property(
        policiesArbitrary,
        policiesArbitrary,
        fc.array(fc.tuple(podArbitrary, peerArbitrary, fc.boolean(), trafficArbitrary), {
          minLength: 20,
          maxLength: 20,
        }),
        (old, next, flows) => {
          const [before, after] = [rulesOf(old), rulesOf([...old.slice(1), ...next])];
          const { changes, complete } = diffPolicies(before, after, WORLD);
          expect(complete).toBe(true);
          const rules = [...before, ...after];
          for (const [pod, peer, sends, traffic] of flows) {
            if (!Object.values<number>(PROTOCOL_NUMBERS).includes(traffic.protocol)) continue;
            const [source, destination] = sends ? [pod, peer] : [peer, pod];
            const [was, is] = [before, after].map((each) => isAllowed(each, source, destination, traffic));
            const told = changes.filter(
              (change) =>
                change.source === nameOf(source, rules) &&
                change.destination === nameOf(destination, rules) &&
                covers(change, traffic.protocol, traffic.port),
            );
            seen[was === is ? 'same' : 'changed'] += 1;
            const word = (allowed: boolean | undefined) => (allowed ? 'allowed' : 'denied');
            expect(told.map((change) => `${change.before} -> ${change.after}`)).toEqual(
              was === is ? [] : [`${word(was)} -> ${word(is)}`],
            );
          }
        },
      ),
      { numRuns: 25 },
    );
    expect(Math.min(seen.changed, seen.same)).toBeGreaterThan(0);
  });
});

it('tells what rules by names and DNS rules change', () => {
  const policy = (egress: readonly object[]): readonly Rule[] =>
    parsePolicy(
      {
        apiVersion: 'cilium.io/v2',
        kind: 'CiliumNetworkPolicy',
        metadata: { name: 'p', namespace: 'a' },
        spec: { endpointSelector: {}, egress },
      },
      'CiliumNetworkPolicy',
    ).rules;
  const ports = [{ port: '53', protocol: 'UDP' }];
  const any = { toEntities: ['all'], toPorts: [{ ports }] };
  const asking = { toEntities: ['all'], toPorts: [{ ports, rules: { dns: [{ matchPattern: '*' }] } }] };
  const named = { toFQDNs: [{ matchPattern: '*.example.com' }], toPorts: [{ ports: [{ port: '443' }] }] };
  expect(diffPolicies(policy([any]), policy([asking]), WORLD).changes).toEqual([]);
  const { changes } = diffPolicies(policy([asking]), policy([asking, named]), WORLD);
  expect(new Set(changes.map(({ destination, after, ports: told }) => `${destination} ${after} ${told}`))).toEqual(
    new Set(['*.example.com allowed TCP 443; UDP 443; SCTP 443']),
  );
});
