import { describe, expect, it } from '@jest/globals';
import { describeRule, parsePolicy, resolve } from './index.ts';
import { judgeFlow } from './testing/flows.ts';
import { allowing } from './testing/parsed.ts';

const E0 = 'spec.ingress[0]';
const policy = (lists: object) =>
  parsePolicy(
    {
      metadata: { name: 'p', namespace: 'a' },
      spec: { endpointSelector: { matchLabels: { app: 'web' } }, ...lists },
    },
    'CiliumNetworkPolicy',
  );
const types = (...fields: unknown[]) => policy({ ingress: [{ icmps: [{ fields }] }] });
const found = (result: ReturnType<typeof policy>) => result.problems.map(({ code, path }) => `${code} ${path}`);
const portsOf = (result: ReturnType<typeof policy>) => result.rules[0]?.elements[0]?.ports;

describe('ICMP types', () => {
  it.each([
    [{ type: 8 }, 'ICMP', 8],
    [{ type: '8' }, 'ICMP', 8],
    [{ type: '0' }, 'ICMP', 0],
    [{ family: '', type: 'EchoRequest' }, 'ICMP', 8],
    [{ family: 'IPv4', type: 'Echo' }, 'ICMP', 8],
    [{ family: 'IPv4', type: 'ExtendedEchoReply' }, 'ICMP', 43],
    [{ family: 'IPv4', type: 255 }, 'ICMP', 255],
    [{ family: 'IPv6', type: 'EchoRequest' }, 'ICMPv6', 128],
    [{ family: 'IPv6', type: 'DuplicateAddressConfirmationCodeSuffix' }, 'ICMPv6', 158],
    [{ family: 'IPv6', type: 8 }, 'ICMPv6', 8],
  ])('%j is %s %i', (field, protocol, type) => {
    const result = types(field);
    expect(result.problems).toEqual([]);
    expect(result.rules[0]?.elements[0]).toMatchObject({ peers: 'any', ports: [{ protocol, from: type, to: type }] });
  });

  it.each([
    [{}, 'type'],
    [{ type: null }, 'type'],
    [{ type: -1 }, 'type'],
    [{ type: 256 }, 'type'],
    [{ type: 8.5 }, 'type'],
    [{ type: '08' }, 'type'],
    [{ type: '256' }, 'type'],
    [{ type: '' }, 'type'],
    [{ type: 'echoRequest' }, 'type'],
    [{ type: 'NeighborSolicitation' }, 'type'],
    [{ type: 'toString' }, 'type'],
    [{ family: 'IPv6', type: 'Echo' }, 'type'],
    [{ family: 'ipv4', type: 8 }, 'family'],
    [{ family: 4, type: 8 }, 'family'],
    [{ type: 8, code: 0 }, 'code'],
  ])('%j is invalid at %s', (field, member) => {
    const result = types(field);
    expect(found(result)).toEqual([`InvalidSpec ${E0}.icmps[0].fields[0].${member}`]);
    expect(allowing(result)).toEqual([]);
  });

  it('are told by the name that is meant', () => {
    expect(types({ type: 'EchoRequst' }).problems[0]?.message).toBe(
      '"EchoRequst" is no type of ICMP: did you mean EchoRequest?',
    );
    expect(types({ type: 'PacketTooBig' }).problems[0]?.message).toBe(
      '"PacketTooBig" is no type of ICMP: it is one of ICMPv6, for which write family: IPv6',
    );
    expect(types({ family: 'IPv6', type: 'Timestamp' }).problems[0]?.message).toBe(
      '"Timestamp" is no type of ICMPv6: it is one of ICMP, for which write family: IPv4',
    );
  });

  it('are at most 40 in an entry', () => {
    const many = (count: number) => types(...Array.from({ length: count }, (_, type) => ({ type })));
    expect(found(many(40))).toEqual([]);
    expect(found(many(41))).toEqual([`InvalidSpec ${E0}.icmps[0].fields`]);
  });

  it('add up over entries and families, neighbours joined', () => {
    const icmps = [
      { fields: [{ type: 9 }, { family: 'IPv6', type: 128 }] },
      { fields: [{ type: 8 }, { type: 8 }, { type: 13 }] },
    ];
    expect(portsOf(policy({ ingress: [{ icmps }] }))).toEqual([
      { protocol: 'ICMP', from: 8, to: 9 },
      { protocol: 'ICMP', from: 13, to: 13 },
      { protocol: 'ICMPv6', from: 128, to: 128 },
    ]);
  });

  it('without fields match nothing, in a deny too, and turn on default deny', () => {
    for (const item of [{}, { fields: [] }, { fields: null }]) {
      const result = policy({ ingress: [{ icmps: [item] }], ingressDeny: [{ icmps: [item] }] });
      expect(result.problems).toEqual([]);
      expect(result.rules[0]?.elements.map(({ ports }) => ports)).toEqual([[], []]);
      expect(result.rules[0]?.defaultDeny.ingress).toBe(true);
    }
  });

  it('are read as lists of objects alone', () => {
    expect(found(policy({ ingress: [{ icmps: [null] }] }))).toEqual([`InvalidSpec ${E0}.icmps[0]`]);
    expect(found(policy({ ingress: [{ icmps: {} }] }))).toEqual([`InvalidSpec ${E0}.icmps`]);
    expect(found(types(null))).toEqual([`InvalidSpec ${E0}.icmps[0].fields[0]`]);
  });

  it('are named as such', () => {
    const { rules } = types({ type: 'EchoRequest' }, { family: 'IPv6', type: 1 });
    const [rule] = resolve(rules, { cookieOf: () => 1 }).rules;
    expect(rule && describeRule(rule)).toBe(
      'allow ingress from any peer on ICMP type 8, ICMPv6 type 1 (spec.ingress[0])',
    );
  });
});

describe('a rule of one family', () => {
  const judge = (lists: object, flow: string) => {
    const { rules } = policy(lists);
    const { expected, oracle, compiled } = judgeFlow(rules, flow, {});
    expect({ flow, oracle, compiled }).toEqual({ flow, oracle: expected, compiled: expected });
  };

  it.each([
    'X -> web icmp/8: allow',
    'X -> web icmpv6/8: deny',
    'X -> web icmp/128: deny',
    'W -> web icmpv6/128: deny',
  ])('icmps of IPv4: %s', (flow) => {
    judge({ ingress: [{ icmps: [{ fields: [{ type: 8 }] }] }] }, flow);
  });

  it('denies of a protocol leave the others', () => {
    const lists = {
      enableDefaultDeny: { ingress: false },
      ingressDeny: [{ toPorts: [{ ports: [{ protocol: 'VRRP' }] }] }],
      ingress: [{ fromEntities: ['all'] }],
    };
    for (const flow of [
      'X -> web vrrp: deny',
      'X -> web gre: allow',
      'X -> web tcp/112: allow',
      'X -> web icmp/112: allow',
    ])
      judge(lists, flow);
  });

  it('allows of a protocol allow no others', () => {
    const lists = { ingress: [{ fromEntities: ['world'], toPorts: [{ ports: [{ protocol: 'GRE' }] }] }] };
    for (const flow of ['X -> web gre: allow', 'X -> web vrrp: deny', 'X -> web tcp/47: deny', 'api -> web gre: deny'])
      judge(lists, flow);
  });
});
