/** Flows written as text, judged in the world of the worked verdicts. For tests. */
import { evaluate } from '../evaluate.ts';
import { addressOf, type OraclePeer, oracleVerdict, peerAt } from '../oracle.ts';
import { parsePolicy } from '../parse.ts';
import type { ParseResult, Rule, Stack } from '../types.ts';
import { WORKED_ADDRESSES, WORKED_REFERENTS, WORKED_WORLD } from '../worked-verdicts.ts';
import { Judge, type JudgeOptions } from './judge.ts';

const PROTOCOLS: Record<string, number> = { tcp: 6, udp: 17, sctp: 132, icmp: 1, icmpv6: 58, gre: 47, vrrp: 112 };

const KINDS = ['CiliumNetworkPolicy', 'CiliumClusterwideNetworkPolicy', 'NetworkPolicy'] as const;

/** Rules and problems of whole Kubernetes objects, each read as the kind that it says. */
export function parseObjects(
  objects: readonly Readonly<Record<string, unknown>>[],
  stack: Stack = 'dual',
): ParseResult {
  const results = objects.map((object) =>
    parsePolicy(object, KINDS.find((kind) => kind === object.kind) ?? 'CiliumNetworkPolicy', {
      ...WORKED_REFERENTS,
      stack,
    }),
  );
  return {
    rules: results.flatMap(({ rules }) => rules),
    refused: results.some(({ refused }) => refused),
    problems: results.flatMap(({ problems }) => problems),
    services: results.flatMap(({ services }) => services),
    cidrGroups: results.flatMap(({ cidrGroups }) => cidrGroups),
    byStack: results.some(({ byStack }) => byStack),
  };
}

/** The peer of a flow, and the number that the datapath would know it by when it is not the one of its address. */
function peerOf(name: string): { peer: OraclePeer; identity?: number } {
  if (name === 'health') return { peer: { kind: 'reserved', name } };
  if (name === 'unknown') return { peer: { kind: 'unknown' } };
  if (name === 'identity 9') return { peer: { kind: 'outside', address: '198.51.100.7' }, identity: 9 };
  if (name === 'identity 10') return { peer: { kind: 'outside', address: '2001:db8:ffff::7' }, identity: 10 };
  const address = WORKED_ADDRESSES[name];
  if (address === undefined) throw new Error(`no address is called ${name}`);
  return { peer: peerAt(WORKED_WORLD, address) };
}

export interface JudgedFlow {
  /** `allow`, `deny`, or which end denies when the flow says so. */
  readonly expected: string;
  /** By the oracle, and by the compiled policies of both ends. */
  readonly oracle: string;
  readonly compiled: string;
}

/** Judges `api -> web tcp/80: allow` in the worked world. */
export function judgeFlow(rules: readonly Rule[], flow: string, options: JudgeOptions): JudgedFlow {
  const parts = /^(.+) -> (\S+) ([a-z0-9]+)(?:\/(\d+))?: (allow|deny|deny ingress|deny egress|outside)$/.exec(flow);
  if (parts === null) throw new Error(`cannot read the flow ${flow}`);
  const [, from = '', to = '', protocolName = '', portText = '0', expected = ''] = parts;
  const protocol = PROTOCOLS[protocolName] ?? -1;
  const port = Number(portText);
  const both = new Judge(WORKED_WORLD, rules, options);
  const source = peerOf(from);
  const target = peerOf(to);

  let oracle = 'allow';
  let compiled = 'allow';
  for (const [direction, subject, other] of [
    ['egress', source, target],
    ['ingress', target, source],
  ] as const) {
    if (subject.peer.kind !== 'endpoint') continue;
    const { endpoint } = subject.peer;
    const slow = oracleVerdict(
      rules,
      direction,
      endpoint,
      other.peer,
      { protocol, port },
      { ...options, endpoints: WORKED_WORLD.endpoints },
    );
    if (oracle === 'allow' && slow.verdict !== 'allow') oracle = `deny ${direction}`;
    const identity = other.identity ?? both.numbers.identityOf(other.peer, endpoint.node);
    const [address] = addressOf(other.peer);
    const fast = evaluate(both.compiledFor(endpoint), { direction, identity, address, protocol, port });
    if (compiled === 'allow' && fast.verdict !== 'allow') compiled = `deny ${direction}`;
  }
  const trim = (text: string) => (expected.includes(' ') ? text : (text.split(' ')[0] ?? text));
  return { expected, oracle: trim(oracle), compiled: trim(compiled) };
}
