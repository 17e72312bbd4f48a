import { describe, expect, it } from '@jest/globals';
import fc from 'fast-check';
import {
  type ClassRows,
  type CompileInput,
  compile,
  compilePieces,
  describeRule,
  evaluate,
  explain,
  type PeerIdentity,
  type PeerRef,
  parsePolicy,
  type ResolvedRule,
  resolve,
  rowsOfIdentity,
} from './index.ts';

let nextPath = 0;
function rule(cookie: number, fields: Partial<ResolvedRule> = {}): ResolvedRule {
  nextPath += 1;
  return {
    subject: 's',
    direction: 'ingress',
    verdict: 'allow',
    defaultDeny: true,
    cookie,
    path: `r${nextPath}`,
    ...fields,
  };
}
const deny = (cookie: number, fields: Partial<ResolvedRule> = {}) => rule(cookie, { verdict: 'deny', ...fields });
const tcp = (from: number, to = from) => ({ ports: [{ protocol: 'TCP' as const, from, to }] });
const peers = (...list: PeerRef[]) => ({ peers: list });

const SETS: Record<string, number[]> = { api: [300, 301], all: [300, 301, 302], empty: [] };
function input(rules: ResolvedRule[], more: Partial<CompileInput> = {}): CompileInput {
  return { rules, peerSets: { identities: (hash) => SETS[hash] }, identities: [], mode: 'default', ...more };
}
const ingress = (rules: ResolvedRule[], more: Partial<CompileInput> = {}) => compile(input(rules, more)).ingress;
const rowTexts = (rows: ClassRows) =>
  rows.map((row) => `${row.protocol} ${row.from}-${row.to} ${row.verdict} ${row.cookie}`);
const everything = (verdict: string, cookie: number) =>
  ['0 0-255', '1 0-255', '6 0-65535', '17 0-65535', '58 0-255', '132 0-65535'].map(
    (text) => `${text} ${verdict} ${cookie}`,
  );

it('rules that name peer sets alone, or every peer, decide the same whatever CIDR identities there are', () => {
  const port = fc.record({ protocol: fc.constantFrom('TCP' as const, 'UDP' as const), from: fc.nat(3) });
  const ports = fc.array(
    fc.oneof(
      port.map((each) => ({ ...each, to: each.from + 1 })),
      fc.record({ protocol: fc.constant('TCP' as const), name: fc.constantFrom('web', 'dns') }),
    ),
    { maxLength: 3 },
  );
  const sets = fc.array(
    fc.constantFrom(...Object.keys(SETS)).map((peerSet) => ({ peerSet })),
    { maxLength: 3 },
  );
  const rules = fc.array(
    fc.record(
      {
        direction: fc.constantFrom('ingress' as const, 'egress' as const),
        verdict: fc.constantFrom('allow' as const, 'deny' as const),
        defaultDeny: fc.boolean(),
        peers: sets,
        ports,
      },
      { requiredKeys: ['direction', 'verdict', 'defaultDeny'] },
    ),
    { maxLength: 6 },
  );
  const cidrs = [
    { id: 0x01000001, cidr: '198.51.100.0/24' },
    { id: 0x01000002, cidr: '203.0.113.7/32', kubeApiserver: true },
    { id: 1, kubeApiserver: true },
  ];
  const none = new Map<number, number[]>();
  const portNames = { own: () => 80, peers: (name: string) => (name === 'web' ? new Map([[300, [8080]]]) : none) };
  fc.assert(
    fc.property(rules, fc.constantFrom('default' as const, 'always' as const), (all, mode) => {
      const of = all.map((fields, at) => rule(1 + at, fields));
      const more = { mode, portNames };
      expect(compile(input(of, { ...more, identities: cidrs }))).toEqual(compile(input(of, more)));
    }),
  );
});

describe('rows', () => {
  it('hold one decision for each interval: deny first, then the lowest cookie', () => {
    const rows = ingress([rule(7, tcp(80, 90)), rule(3, tcp(85, 100)), deny(9, tcp(88)), deny(5, tcp(87, 88))]).scope
      .pod;
    expect(rowTexts(rows)).toEqual(['6 80-84 allow 7', '6 85-86 allow 3', '6 87-88 deny 5', '6 89-100 allow 3']);
  });

  it('are for all protocols without ports, and none for an empty list of ports', () => {
    expect(rowTexts(ingress([rule(2)]).scope.world)).toEqual(everything('allow', 2));
    expect(ingress([rule(2, { ports: [] })]).scope.world).toEqual([]);
    expect(ingress([deny(2, { ports: [] }), rule(3)]).scope.world).toEqual(ingress([rule(3)]).scope.world);
  });

  it('allow what is not denied when no rule has default deny, without naming a rule', () => {
    const off = { defaultDeny: false };
    const rows = ingress([deny(4, { ...off, ...tcp(22) }), rule(6, { ...off, ...tcp(80) })]).scope.pod;
    expect(rowTexts(rows.filter((row) => row.protocol === 6))).toEqual([
      '6 0-21 allow 0',
      '6 22-22 deny 4',
      '6 23-79 allow 0',
      '6 80-80 allow 6',
      '6 81-65535 allow 0',
    ]);
    expect(rowTexts(rows.filter((row) => row.protocol === 0))).toEqual(['0 0-255 allow 0']);
    expect(ingress([deny(4, off)], { mode: 'always' }).scope.pod).toHaveLength(6);
    expect(ingress([rule(6, { ...off, ...peers() })], { mode: 'always' }).scope.pod).toEqual([]);
  });
});

describe('enforcement', () => {
  it('follows the mode', () => {
    expect(compile(input([])).egress.enforced).toBe(false);
    expect(compile(input([rule(1)]))).toMatchObject({ ingress: { enforced: true }, egress: { enforced: false } });
    expect(compile(input([rule(1)], { mode: 'never' }))).toMatchObject({
      ingress: { enforced: false },
      egress: { enforced: false },
    });
    expect(compile(input([], { mode: 'always' }))).toMatchObject({
      ingress: { enforced: true },
      egress: { enforced: true },
    });
  });

  it('lets the own node in unless an explicit deny hits', () => {
    const host = (rules: ResolvedRule[], more: Partial<CompileInput> = {}) =>
      rowTexts(rowsOfIdentity(ingress(rules, more), 1));
    expect(host([rule(1, peers())])).toEqual(everything('allow', 0));
    expect(host([rule(1, peers())], { allowLocalhost: false })).toEqual([]);
    expect(host([deny(1, peers({ entity: 'host' }))])).toEqual(everything('deny', 1));
    expect(rowsOfIdentity(compile(input([rule(1, { direction: 'egress', ...peers() })])).egress, 1)).toEqual([]);
  });
});

describe('classes', () => {
  const members = (rules: ResolvedRule[], identities: PeerIdentity[] = []) =>
    ingress(rules, { identities, allowLocalhost: false }).classes.map((one) => one.members);
  const RESERVED = [1, 3, 4, 5, 6, 7, 8, 11];

  it('hold the identities that the same rules hit', () => {
    expect(members([rule(1, peers({ peerSet: 'api' })), rule(2, peers({ peerSet: 'all' }))])).toEqual([
      RESERVED,
      [300, 301],
      [302],
    ]);
    expect(members([rule(1, peers({ peerSet: 'empty' }))])).toEqual([RESERVED]);
    // Members of a set that the scope is hit by all the same need no class of their own.
    expect(members([rule(1, peers({ peerSet: 'api' }, { entity: 'cluster' }))])).toEqual([[1, 3, 4, 5, 6, 7, 8], [11]]);
  });

  it('follow CIDRs by containment, exceptions included', () => {
    const identities = ['10.0.0.0/8', '10.1.0.0/16', '10.1.2.0/24', '192.0.2.0/24', 'fd00::/8'].map((cidr, index) => ({
      id: 0x01000001 + index,
      cidr,
    }));
    const [wide, middle, narrow, other, six] = identities.map(({ id }) => id);
    const ref = { cidr: '10.0.0.0/8', except: ['10.1.0.0/16'] };
    // An exception is named too, or its addresses would be judged as the CIDR around it.
    expect(members([rule(1, peers(ref))], identities)).toEqual([[...RESERVED, middle, narrow], [wide]]);
    expect(members([rule(1, peers(ref, { cidr: '10.1.2.0/24' }))], identities)).toEqual([
      [...RESERVED, middle],
      [wide, narrow],
    ]);
    expect(members([rule(1, peers({ cidr: '0.0.0.0/0' }))], identities)).toEqual([
      RESERVED,
      [2, 9, wide, middle, narrow, other],
    ]);
    expect(members([rule(1, peers({ cidr: '::/0' }))], identities)).toEqual([RESERVED, [10, six]]);
    expect(members([rule(1, peers({ entity: 'world' }))], identities)).toEqual([RESERVED]);
    expect(members([rule(1, peers({ entity: 'world-ipv6' }))], identities)).toEqual([RESERVED, [10, six]]);
  });

  it('follow the flag of an API server', () => {
    const identities = [
      { id: 1, kubeApiserver: true },
      { id: 0x01000005, cidr: '192.0.2.1/32', kubeApiserver: true },
    ];
    expect(members([rule(1, peers({ entity: 'kube-apiserver' }))], identities)).toEqual([
      [1, 7, 0x01000005],
      [3, 4, 5, 6, 8, 11],
    ]);
  });

  it('give an unknown peer every deny and only the allows of anybody', () => {
    const rules = [
      rule(1, peers({ entity: 'cluster' })),
      rule(2, peers({ entity: 'all' }, { peerSet: 'api' })),
      deny(3, { ...peers({ peerSet: 'empty' }), ...tcp(80) }),
    ];
    expect(rowTexts(ingress(rules).scope.unknown.filter((row) => row.protocol === 6))).toEqual([
      '6 0-79 allow 2',
      '6 80-80 deny 3',
      '6 81-65535 allow 2',
    ]);
    expect(ingress([deny(3, peers()), deny(4, peers({ entity: 'none' }))]).scope.unknown).toEqual([]);
    expect(
      evaluate(compile(input(rules)), { direction: 'ingress', identity: 0x04000001, protocol: 6, port: 80 }),
    ).toEqual({
      verdict: 'deny',
      cookie: 3,
      by: 'row',
    });
  });

  it('stay few when identities are many', () => {
    const sets = new Map(
      Array.from({ length: 1000 }, (_, index) => [
        `set${index}`,
        Array.from({ length: 10 }, (_, i) => 256 + index * 10 + i),
      ]),
    );
    const ports = Array.from({ length: 40 }, (_, index) => ({
      protocol: 'TCP' as const,
      from: 1000 + index * 2,
      to: 1000 + index * 2,
    }));
    const wide = rule(1, { peers: [...sets.keys()].map((peerSet) => ({ peerSet })), ports });
    const many = ingress([wide], { peerSets: { identities: (hash) => sets.get(hash) } });
    expect(many.classes).toHaveLength(3);
    expect(many.classes.map((one) => [one.members.length, one.rows.length])).toEqual([
      [1, 6],
      [7, 0],
      [10000, 40],
    ]);
  });

  it('refuse a rule that no parser made', () => {
    expect(() => compile(input([rule(0)]))).toThrow(expect.objectContaining({ code: 'ERR_WEIR_RESOLVED_RULE' }));
    expect(() => compile(input([rule(1, tcp(9, 8))]))).toThrow('no interval');
    expect(() => compile(input([rule(1, peers({ peerSet: 'gone' }))]))).toThrow('gone');
  });
});

describe('resolve', () => {
  const { rules } = parsePolicy(
    {
      metadata: { name: 'p', namespace: 'a' },
      spec: {
        endpointSelector: { matchLabels: { app: 'web' } },
        ingress: [
          {
            fromEndpoints: [{ matchLabels: { app: 'api' } }, { matchLabels: { 'any:app': 'api' } }],
            toPorts: [{ ports: [{ port: '80', protocol: 'TCP' }] }],
          },
          {},
        ],
        egressDeny: [{ toCIDRSet: [{ cidr: '10.0.0.0/8', except: ['10.1.0.0/16'] }, { cidr: '192.0.2.0/24' }] }],
        enableDefaultDeny: { egress: false },
        log: { value: 'x' },
      },
    },
    'CiliumNetworkPolicy',
  );
  const cookies = new Map([
    ['spec.ingress[0]', 5],
    ['spec.ingress[1]', 6],
    ['spec.egressDeny[0]', 7],
  ]);
  const resolved = resolve(rules, { cookieOf: (_, element) => cookies.get(element.path) ?? 0 });

  it('names selectors by hash, one for each distinct one', () => {
    expect(resolved.selectors.size).toBe(2);
    const [first, second, third] = resolved.rules;
    expect(first).toMatchObject({
      direction: 'ingress',
      cookie: 5,
      defaultDeny: true,
      log: 'x',
      ports: [{ protocol: 'TCP', from: 80, to: 80 }],
    });
    expect(first?.peers).toHaveLength(1);
    expect(second).toMatchObject({ peers: [], cookie: 6 });
    expect(second).not.toHaveProperty('ports');
    expect(third).toMatchObject({
      direction: 'egress',
      verdict: 'deny',
      defaultDeny: false,
      peers: [{ cidr: '10.0.0.0/8', except: ['10.1.0.0/16'] }, { cidr: '192.0.2.0/24' }],
    });
    for (const one of resolved.rules) expect(resolved.selectors.has(one.subject)).toBe(true);
    expect(JSON.parse(JSON.stringify(resolved.rules))).toEqual(resolved.rules);
  });

  it('is described and explained in words', () => {
    expect(resolved.rules.map(describeRule).slice(1)).toEqual([
      'allow ingress from nobody on every protocol and port (spec.ingress[1])',
      'deny egress to 10.0.0.0/8 except 10.1.0.0/16 or 192.0.2.0/24 on every protocol and port (spec.egressDeny[0])',
    ]);
    const base = { rules: resolved.rules, peerSets: { identities: () => [300] }, mode: 'default' as const };
    const denied = explain(base, {
      direction: 'egress',
      peer: { id: 0x01000001, cidr: '192.0.2.0/25' },
      protocol: 6,
      port: 80,
    });
    expect(denied).toMatchObject({ verdict: 'deny', reason: 'explicit-deny', deciding: [{ cookie: 7 }] });
    expect(denied.text).toContain('spec.egressDeny[0]');
    expect(explain(base, { direction: 'egress', peer: { id: 300 }, protocol: 6, port: 80 }).reason).toBe(
      'no-default-deny',
    );
    expect(explain(base, { direction: 'ingress', peer: { id: 300 }, protocol: 6, port: 81 }).reason).toBe('no-match');
    expect(explain(base, { direction: 'ingress', peer: { id: 1 }, protocol: 6, port: 81 }).reason).toBe('localhost');
  });
});

describe('compilePieces()', () => {
  it('does the same in steps, the more the more identities there are', () => {
    const ids = (count: number): number[] => Array.from({ length: count }, (_, at) => 1000 + at);
    const sized = (count: number): CompileInput =>
      input([rule(1, peers({ peerSet: 'large' })), deny(2, peers({ peerSet: 'even' }))], {
        peerSets: { identities: (hash) => ids(count).filter((id) => hash === 'large' || id % 2 === 0) },
      });
    const stepsOf = (count: number): number => {
      const work = compilePieces(sized(count));
      for (let steps = 1; ; steps += 1) {
        const { done, value } = work.next();
        if (done !== true) continue;
        expect(value).toEqual(compile(sized(count)));
        return steps;
      }
    };
    // Each member of each set, and each identity that is decided, is in a step of at most 64.
    expect(stepsOf(12_800) - stepsOf(6400)).toBeGreaterThanOrEqual((6400 * 2.5) / 64 - 3);
  });
});
