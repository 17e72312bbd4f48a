import { describe, expect, it } from '@jest/globals';
import {
  type CompileInput,
  compile,
  describeRule,
  evaluate,
  explain,
  type OracleEndpoint,
  oracleVerdict,
  type PortNames,
  parsePolicy,
  portNamesOf,
  type ResolvedRule,
  type RulePort,
} from './index.ts';

const HTTP: RulePort = { protocol: 'TCP', name: 'http' };
const UDP_HTTP: RulePort = { protocol: 'UDP', name: 'http' };
const PG: RulePort = { protocol: 'TCP', name: 'pg' };
const SETS: Record<string, readonly number[]> = { db: [300, 301, 302], web: [400] };

function rule(cookie: number, fields: Partial<ResolvedRule>): ResolvedRule {
  return {
    subject: 's',
    direction: 'egress',
    verdict: 'allow',
    defaultDeny: true,
    cookie,
    path: `r${cookie}`,
    ...fields,
  };
}

/** TCP names of identities: 300 and 301 have one number, 302 two, 303 is in no set, 16777217 is a CIDR. */
const PEERS: Record<string, readonly (readonly [number, readonly number[]])[]> = {
  'TCP/http': [
    [300, [80]],
    [301, [8080]],
    [302, [80, 8080]],
    [303, [81]],
  ],
  'UDP/http': [[300, [53]]],
};

function namesOf(own: Record<string, number> = {}): PortNames {
  return {
    own: (name, protocol) => own[`${protocol}/${name}`],
    peers: (name, protocol) => new Map(PEERS[`${protocol}/${name}`] ?? []),
  };
}

function input(rules: readonly ResolvedRule[], own: Record<string, number> = {}): CompileInput {
  return {
    rules,
    peerSets: { identities: (hash) => SETS[hash] },
    identities: [],
    mode: 'default',
    portNames: namesOf(own),
  };
}

/** Which of a few ports the identity may use. */
function open(given: CompileInput, direction: 'ingress' | 'egress', identity: number, protocol = 6): number[] {
  const compiled = compile(given);
  return [53, 80, 81, 8080].filter(
    (port) => evaluate(compiled, { direction, identity, protocol, port }).verdict === 'allow',
  );
}

describe('a port name on ingress', () => {
  const named = rule(1, { direction: 'ingress', ports: [HTTP] });

  it("is the endpoint's own number, for whoever comes", () => {
    const web = input([named], { 'TCP/http': 8080, 'UDP/http': 53 });
    for (const identity of [300, 303, 2, 6, 0]) expect(open(web, 'ingress', identity)).toEqual([8080]);
    expect(open(web, 'ingress', 300, 17)).toEqual([]);
  });

  it('that the endpoint lacks matches nothing, in an allow and in a deny, and default deny stays', () => {
    expect(open(input([named]), 'ingress', 300)).toEqual([]);
    expect(compile(input([named])).ingress.enforced).toBe(true);
    const denied = rule(2, { direction: 'ingress', verdict: 'deny', ports: [PG] });
    const all = rule(3, { direction: 'ingress' });
    expect(open(input([denied, all]), 'ingress', 300)).toEqual([53, 80, 81, 8080]);
  });

  it('stands beside numbers, and a deny of the number beats it', () => {
    const both = rule(1, { direction: 'ingress', ports: [{ protocol: 'TCP', from: 53, to: 53 }, HTTP] });
    expect(open(input([both], { 'TCP/http': 80 }), 'ingress', 300)).toEqual([53, 80]);
    const denied = rule(2, { direction: 'ingress', verdict: 'deny', ports: [{ protocol: 'TCP', from: 79, to: 81 }] });
    expect(open(input([both, denied], { 'TCP/http': 80 }), 'ingress', 300)).toEqual([53]);
  });
});

describe('a port name on egress', () => {
  const toDb = rule(1, { peers: [{ peerSet: 'db' }], ports: [HTTP] });

  it('is the number of the peer, when that one is known', () => {
    expect(open(input([toDb]), 'egress', 300)).toEqual([80]);
    expect(open(input([toDb]), 'egress', 301)).toEqual([8080]);
    expect(open(input([toDb]), 'egress', 302)).toEqual([]);
    expect(open(input([toDb]), 'egress', 303)).toEqual([]);
    expect(open(input([toDb], { 'TCP/http': 53 }), 'egress', 400)).toEqual([]);
  });

  it('without peers reaches the identities that have the name, and nobody else', () => {
    const any = rule(1, { ports: [HTTP, UDP_HTTP] });
    expect([300, 301, 302, 303].map((id) => open(input([any]), 'egress', id))).toEqual([[80], [8080], [], [81]]);
    expect(open(input([any]), 'egress', 300, 17)).toEqual([53]);
    for (const nobody of [400, 1, 2, 6, 0, 0x01000001]) expect(open(input([any]), 'egress', nobody)).toEqual([]);
  });

  it('denied means every number that the peer may mean; to an unknown peer, every number that anyone means', () => {
    const all = rule(2, {});
    const deny = rule(1, { verdict: 'deny', peers: [{ peerSet: 'db' }], ports: [HTTP] });
    expect([300, 301, 302, 303].map((id) => open(input([deny, all]), 'egress', id))).toEqual([
      [53, 81, 8080],
      [53, 80, 81],
      [53, 81],
      [53, 80, 81, 8080],
    ]);
    expect(open(input([deny, all]), 'egress', 0)).toEqual([53]);
    expect(open(input([deny, all]), 'egress', 2)).toEqual([53, 80, 81, 8080]);
  });

  it('stands for nothing when nobody knows names', () => {
    const { portNames: _, ...without } = input([toDb]);
    const compiled = compile(without);
    expect(evaluate(compiled, { direction: 'egress', identity: 300, protocol: 6, port: 80 }).verdict).toBe('deny');
  });

  it('splits classes only where numbers differ for a rule that hits', () => {
    const compiled = compile(input([toDb, rule(2, { peers: [{ peerSet: 'web' }] })]));
    const members = compiled.egress.classes.map((one) => one.members.filter((id) => id >= 256));
    expect(members.filter((ids) => ids.length > 0)).toEqual([[302], [300], [301], [400]]);
  });

  it('is asked of the peers once, however many rules use it, and makes few classes of many identities', () => {
    const many = Array.from({ length: 20_000 }, (_, index) => 1000 + index);
    const known = new Map(many.map((id) => [id, [id % 2 === 0 ? 80 : 8080]]));
    const asked: string[] = [];
    const rules = Array.from({ length: 300 }, (_, index) =>
      rule(index + 1, { verdict: index % 2 === 0 ? 'allow' : 'deny', peers: [{ entity: 'cluster' }], ports: [HTTP] }),
    );
    const compiled = compile({
      ...input(rules),
      portNames: {
        own: () => undefined,
        peers(name, protocol) {
          asked.push(`${protocol}/${name}`);
          return known;
        },
      },
    });
    expect(asked).toEqual(['TCP/http']);
    const large = compiled.egress.classes.filter((one) => one.members.length > 100);
    expect(large.map((one) => [one.members.length, one.rows.length])).toEqual([
      [10_000, 1],
      [10_000, 1],
    ]);
  });
});

describe('ports by name', () => {
  it('are listed by direction for whoever watches what they mean', () => {
    const rules = [
      rule(1, { ports: [PG, HTTP, { protocol: 'TCP', from: 1, to: 2 }] }),
      rule(2, { verdict: 'deny', ports: [UDP_HTTP, HTTP] }),
      rule(3, { direction: 'ingress', ports: [PG] }),
      rule(4, { direction: 'ingress' }),
    ];
    expect(portNamesOf(rules)).toEqual({ ingress: [PG], egress: [HTTP, PG, UDP_HTTP] });
    expect(portNamesOf([])).toEqual({ ingress: [], egress: [] });
  });

  it('change a compiled policy only through the names that are listed', () => {
    const rules = [rule(1, { ports: [PG] }), rule(2, { direction: 'ingress', ports: [PG] })];
    const with53 = compile(input(rules, { 'TCP/http': 53 }));
    expect(compile(input(rules, { 'TCP/http': 80 }))).toEqual(with53);
    expect(compile(input(rules, { 'TCP/pg': 80 }))).not.toEqual(with53);
  });

  it('are written and explained by their names', () => {
    const named = rule(1, { peers: [{ peerSet: 'db' }], ports: [{ protocol: 'TCP', from: 443, to: 443 }, HTTP] });
    expect(describeRule(named)).toBe('allow egress to peer set db on TCP 443, TCP http (r1)');
    const ask = (id: number, port: number) =>
      explain(input([named]), { direction: 'egress', peer: { id }, protocol: 6, port }).reason;
    expect([ask(300, 80), ask(300, 8080), ask(302, 80), ask(302, 443)]).toEqual([
      'rule-allows',
      'no-match',
      'no-match',
      'rule-allows',
    ]);
  });

  it('that no parser makes are refused', () => {
    const empty = rule(1, { ports: [{ protocol: 'TCP', name: '' }] });
    expect(() => compile(input([empty]))).toThrow('TCP "" is no port name');
  });

  it('mean what equal pods may mean, in the slow reading too', () => {
    const pod = (name: string, labels: Record<string, string>, port: number): OracleEndpoint => ({
      name,
      labels: { 'k8s:io.kubernetes.pod.namespace': 'a', ...labels },
      addresses: [],
      node: 'n',
      namedPorts: [{ name: 'http', port, protocol: 'TCP' }],
    });
    const [one, two, other] = [pod('1', { 'k8s:x': 'y' }, 80), pod('2', { 'k8s:x': 'y' }, 81), pod('3', {}, 80)];
    const reads = (list: 'egress' | 'egressDeny', peer: OracleEndpoint, endpoints: OracleEndpoint[]) => {
      const element = { toEntities: ['all'], toPorts: [{ ports: [{ port: 'http', protocol: 'TCP' }] }] };
      const spec = { endpointSelector: {}, [list]: [element], enableDefaultDeny: { egress: list === 'egress' } };
      const { rules } = parsePolicy({ metadata: { name: 'p', namespace: 'a' }, spec }, 'CiliumNetworkPolicy');
      return [80, 81].map(
        (port) =>
          oracleVerdict(
            rules,
            'egress',
            other,
            { kind: 'endpoint', endpoint: peer },
            { protocol: 6, port },
            { endpoints },
          ).verdict,
      );
    };
    expect(reads('egress', one, [one, other])).toEqual(['allow', 'deny']);
    expect(reads('egress', one, [one, two, other])).toEqual(['deny', 'deny']);
    expect(reads('egressDeny', one, [one, two, other])).toEqual(['deny', 'deny']);
    expect(reads('egressDeny', other, [one, two, other])).toEqual(['deny', 'allow']);
  });
});
