import { describe, expect, it } from '@jest/globals';
import {
  evaluate,
  OracleInputError,
  type OraclePeer,
  oracleConnection,
  oracleVerdict,
  parsePolicy,
  peerAt,
} from './index.ts';
import { Judge } from './testing/judge.ts';
import { WORKED_ADDRESSES, WORKED_VERDICTS, WORKED_WORLD, type WorkedRow } from './worked-verdicts.ts';

const PROTOCOLS: Record<string, number> = { tcp: 6, udp: 17, sctp: 132, icmp: 1, gre: 47 };

function parse(row: WorkedRow) {
  const results = row.objects.map((object) =>
    parsePolicy(
      object,
      object.kind === 'CiliumClusterwideNetworkPolicy' ? 'CiliumClusterwideNetworkPolicy' : 'CiliumNetworkPolicy',
    ),
  );
  return { rules: results.flatMap(({ rules }) => rules), problems: results.flatMap(({ problems }) => problems) };
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

/** `allow`, `deny egress` or `deny ingress`, by the oracle and by the compiled policies of both ends. */
function judge(row: WorkedRow, flow: string): { expected: string; oracle: string; compiled: string } {
  const parts = /^(.+) -> (\S+) ([a-z]+)(?:\/(\d+))?: (allow|deny|deny ingress|deny egress|outside)$/.exec(flow);
  if (parts === null) throw new Error(`cannot read the flow ${flow}`);
  const [, from = '', to = '', protocolName = '', portText = '0', expected = ''] = parts;
  const protocol = PROTOCOLS[protocolName] ?? -1;
  const port = Number(portText);
  const options = row.mode === undefined ? {} : { mode: row.mode };
  const { rules } = parse(row);
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
    const slow = oracleVerdict(rules, direction, endpoint, other.peer, { protocol, port }, options);
    if (oracle === 'allow' && slow.verdict === 'deny') oracle = `deny ${direction}`;
    const identity = other.identity ?? both.numbers.identityOf(other.peer, endpoint.node);
    const fast = evaluate(both.compiledFor(endpoint), { direction, identity, protocol, port });
    if (compiled === 'allow' && fast.verdict === 'deny') compiled = `deny ${direction}`;
  }
  const trim = (text: string) => (expected.includes(' ') ? text : (text.split(' ')[0] ?? text));
  return { expected, oracle: trim(oracle), compiled: trim(compiled) };
}

describe('worked verdicts of the language', () => {
  it('has every row of the table, each judged, refused or outside', () => {
    const numbers = [...new Set(WORKED_VERDICTS.map(({ row }) => row))].sort((a, b) => a - b);
    expect(numbers).toEqual(Array.from({ length: 98 }, (_, index) => index + 1));
    const kinds = { judged: 0, partly: 0, rejected: 0, outside: 0 };
    for (const { flows, refused, outside } of WORKED_VERDICTS) {
      if (outside !== undefined) kinds.outside += 1;
      else if (refused === undefined) kinds.judged += (flows ?? []).length > 0 ? 1 : 0;
      else if (refused.code === 'InvalidSpec') kinds.rejected += 1;
      else kinds.partly += (flows ?? []).length > 0 ? 1 : 0;
    }
    expect(kinds.judged + kinds.partly + kinds.rejected + kinds.outside).toBe(WORKED_VERDICTS.length);
    expect(kinds).toEqual({ judged: 55, partly: 25, rejected: 23, outside: 1 });
  });

  for (const row of WORKED_VERDICTS) {
    it(`${row.row}: ${row.title}`, () => {
      const { rules, problems } = parse(row);
      if (row.outside !== undefined) {
        const flow = { from: '203.0.113.9', to: '10.9.0.1', protocol: 6, port: 22 };
        expect(() => oracleConnection(WORKED_WORLD, rules, flow, { mode: 'always' })).toThrow(OracleInputError);
        return;
      }
      if (row.refused === undefined) expect(problems).toEqual([]);
      else expect(problems).toContainEqual(expect.objectContaining(row.refused));
      if (row.refused?.code === 'InvalidSpec') expect(rules).toEqual([]);
      if (row.refused?.code === 'UnsupportedField') {
        expect(problems.every(({ code }) => code === 'UnsupportedField')).toBe(true);
      }
      for (const flow of row.flows ?? []) {
        const { expected, oracle, compiled } = judge(row, flow);
        expect({ flow, oracle, compiled }).toEqual({ flow, oracle: expected, compiled: expected });
      }
    });
  }
});
