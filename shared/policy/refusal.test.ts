/** What is refused of a policy opens nothing: it allows nothing, it denies all that it may mean, and the rest stands (spec, "Refusing opens nothing"). */
import { describe, expect, it } from '@jest/globals';
import fc from 'fast-check';
import { runs } from '../../test/runs.ts';
import { closedPolicy } from './closed.ts';
import { oracleVerdict, type ParseResult, parsePolicy } from './index.ts';
import { networkPolicyArbitrary } from './testing/network-policies.ts';
import { allowing, cnp, deny, egress, found, ingress, type Json, WEB } from './testing/parsed.ts';
import { JUNK, spoil } from './testing/spoiled.ts';
import { policyArbitrary, SMALL_WORLD, SMALL_WORLD_PEERS, trafficArbitrary } from './testing/worlds.ts';

const denying = ({ rules }: ParseResult) =>
  rules
    .flatMap(({ elements }) => elements)
    .flatMap(({ verdict, peers, ports }) => (verdict === 'deny' ? [{ peers, ports }] : []));

describe('a policy of which a part cannot be read', () => {
  it('never allows what it would allow as it was meant not to', () => {
    let refusals = 0;
    fc.assert(
      fc.property(
        fc.oneof(policyArbitrary, networkPolicyArbitrary),
        fc.noBias(fc.nat({ max: 100_000 })),
        fc.constantFrom(...JUNK),
        fc.boolean(),
        fc.array(trafficArbitrary, { minLength: 1, maxLength: 3 }),
        ({ object, kind }, at, junk, beside, traffics) => {
          const meant = parsePolicy(object, kind, { stack: 'dual' });
          const read = parsePolicy(spoil(object, at, junk, beside), kind, { stack: 'dual' });
          if (read.refused || !read.problems.some(({ code }) => code === 'InvalidSpec')) return;
          refusals += 1;
          for (const subject of SMALL_WORLD.endpoints.slice(0, 4)) {
            for (const direction of ['ingress', 'egress'] as const) {
              for (const peer of SMALL_WORLD_PEERS) {
                for (const traffic of traffics) {
                  const ask = (result: ParseResult) =>
                    oracleVerdict(result.rules, direction, subject, peer, traffic).verdict;
                  if (ask(meant) === 'deny' && ask(read) === 'allow')
                    expect({
                      read: spoil(object, at, junk, beside),
                      subject: subject.name,
                      direction,
                      peer,
                      traffic,
                    }).toBe('denied');
                }
              }
            }
          }
        },
      ),
      { numRuns: runs(2000) },
    );
    expect(refusals).toBeGreaterThan(runs(200));
  });

  it('denies everything where no item of toPorts is one', () => {
    expect(denying(deny({ fromEntities: ['world'], toPorts: ['junk'] }))).toMatchObject([{ ports: 'any' }]);
  });

  it.each([
    ['a misspelt toPorts', ingress({ fromEntities: ['world'], toPort: [{ ports: [{ port: '80' }] }] })],
    ['a leading zero', ingress({ toPorts: [{ ports: [{ port: '010', protocol: 'TCP' }] }] })],
    ['an authentication without mode', ingress({ fromEntities: ['world'], authentication: {} })],
    ['two kinds of peers', ingress({ fromEntities: ['world'], fromCIDR: ['0.0.0.0/0'] })],
    ['a list that is none', cnp({ endpointSelector: WEB, ingress: 'all' })],
    ['an element that is none', ingress(5)],
    ['a misspelt list', cnp({ endpointSelector: WEB, ingres: [{ fromEntities: ['world'] }] })],
    ['an exception outside', ingress({ fromCIDRSet: [{ cidr: '10.0.0.0/8', except: ['11.0.0.0/8'] }] })],
  ])('keeps its default deny: %s', (_, result) => {
    expect(result.problems.map(({ code }) => code)).toContain('InvalidSpec');
    expect([result.refused, allowing(result)]).toEqual([false, []]);
    expect(result.rules[0]?.defaultDeny).toMatchObject({ ingress: true, egress: false });
  });

  it('keeps what is clear: other elements, peers and ports', () => {
    const result = ingress(
      { fromEntities: ['world', 'wrold'], toPorts: [{ ports: [{ port: '80', protocol: 'TCP' }, { port: 'x y' }] }] },
      { fromEntities: ['host'] },
    );
    expect(found(result)).toHaveLength(2);
    expect(allowing(result)).toMatchObject([
      { peers: [{ entity: 'world' }], ports: [{ protocol: 'TCP', from: 80, to: 80 }] },
      { peers: [{ entity: 'host' }], ports: 'any' },
    ]);
    const [rule] = cnp({ endpointSelector: WEB, priority: 1, ingress: [{ fromEntities: ['host'] }] }).rules;
    expect(rule?.elements).toMatchObject([{ peers: [{ entity: 'host' }] }]);
  });

  it.each([
    [
      'a CIDR',
      deny({ fromCIDR: ['10.0.0.0/33'], toPorts: [{ ports: [{ port: '80', protocol: 'TCP' }] }] }),
      [{ kind: 'entity', entity: 'world' }],
      80,
    ],
    ['a selector', deny({ fromEndpoints: [{ app: 'x' }] }), 'any', undefined],
    ['a node', deny({ fromNodes: [null] }), [{ kind: 'entity', entity: 'remote-node' }], undefined],
    [
      'a misspelt peer beside ports',
      deny({ fromEndpoint: [{}], toPorts: [{ ports: [{ port: '80', protocol: 'TCP' }] }] }),
      'any',
      80,
    ],
    ['a misspelt peer alone', deny({ fromEndpoint: [{}] }), 'any', undefined],
    [
      'L7 rules',
      deny({ fromEntities: ['world'], toPorts: [{ ports: [{ port: '80', protocol: 'TCP' }], rules: {} }] }),
      [{ kind: 'entity', entity: 'world' }],
      80,
    ],
    ['an element that is none', deny(7), 'any', undefined],
  ])('denies all that it may mean: %s', (_, result, peers, port) => {
    expect(result.refused).toBe(false);
    const ports = port === undefined ? 'any' : [{ protocol: 'TCP', from: port, to: port }];
    expect(denying(result)).toEqual([{ peers, ports }]);
  });

  it.each([
    ['ingresDeny', [{ fromEntities: ['host'] }], [{ peers: [{ kind: 'entity', entity: 'host' }], ports: 'any' }]],
    ['IngressDeny', [{}], [{ peers: [], ports: 'any' }]],
    ['ingressdeny', { fromEntities: ['host'] }, [{ peers: 'any', ports: 'any' }]],
  ])('denies what a misspelt list of denies lists: %s', (field, list, expected) => {
    const result = cnp({ endpointSelector: WEB, ingress: [{ fromEntities: ['all'] }], [field]: list });
    expect(found(result)).toContain(`InvalidSpec spec.${field}`);
    expect(denying(result)).toEqual(expected);
    expect(allowing(result)).toHaveLength(1);
  });

  it.each([
    ['an authentication', { authentication: { mode: 'Required' } }, 'authenticate'],
    ['an authentication of a misspelt field', { authentication: { modes: 'required' } }, 'authenticate'],
    ['L7 rules of a misspelt kind', { rules: { Http: [{}] } }, 'redirect'],
    ['misspelt L7 rules', { rule: { http: [{}] } }, 'redirect'],
    ['misspelt server names', { servernames: ['a.io'] }, 'redirect'],
    ['a member that is none, beside DNS rules', { rules: { dns: [{ matchName: 'a.io' }] }, x: 1 }, 'redirect'],
  ])('denies the flows that it asks more of, where that cannot be read: %s', (_, asked, verdict) => {
    const ports = [{ port: '80', protocol: 'TCP' }];
    const { authentication, ...l7 } = { authentication: undefined, ...asked };
    const result = egress(
      { toPorts: [{ ports, ...l7 }], ...(authentication && { authentication }) },
      { toEntities: ['all'] },
    );
    expect(found(result)[0]).toMatch(/^InvalidSpec /);
    const [element, plain] = result.rules[0]?.elements ?? [];
    expect(element).toMatchObject({ verdict, peers: 'any', ports: [{ protocol: 'TCP', from: 80, to: 80 }] });
    expect(element?.dns).toBeUndefined();
    expect(plain).toMatchObject({ verdict: 'allow' });
  });

  it('denies everything where so many fields are unknown that nobody compares them', () => {
    const odd = (count: number) => Object.fromEntries(Array.from({ length: count }, (_, i) => [`x${i}`, []]));
    expect(denying(cnp({ endpointSelector: WEB, ingress: [{}], ...odd(100) }))).toEqual([]);
    const { rules } = cnp({ endpointSelector: WEB, ingress: [{}], ...odd(101) });
    expect(rules[0]?.defaultDeny).toEqual({ ingress: true, egress: true });
    expect(denying({ rules } as ParseResult)).toEqual([1, 2].map(() => ({ peers: 'any', ports: 'any' })));
  });

  it('takes a member of a port rule that is none for nothing that restricts it', () => {
    const result = ingress({ toPorts: [{ ports: [{ port: '80' }], comment: 'x' }] });
    expect(result.rules[0]?.elements).toMatchObject([{ verdict: 'allow', ports: [] }]);
  });

  it('of a deny, a port that cannot be read is every port of its protocol, an ICMP type every type', () => {
    const [tcp] = denying(deny({ toPorts: [{ ports: [{ port: 'a b', protocol: 'TCP' }] }] }));
    expect(tcp?.ports).toEqual([{ protocol: 'TCP', from: 0, to: 65_535 }]);
    const [types] = denying(deny({ icmps: [{ fields: [{ typ: 8 }] }] }));
    expect(types?.ports).toMatchObject([{ protocol: 'ICMP', from: 0, to: 255 }, { protocol: 'ICMPv6' }]);
    const [every] = denying(deny({ toPorts: [{ port: [{ port: '80' }] }] }));
    expect(every?.ports).toHaveLength(10);
    expect(denying(deny({ toPorts: [{ ports: [] }] }))).toEqual([{ peers: 'any', ports: [] }]);
  });
});

describe('a policy that is refused whole', () => {
  it.each([
    ['without a selector', cnp({ ingress: [{}] })],
    ['with a selector that is none', cnp({ endpointSelector: { matchLabel: {} }, ingress: [{}] })],
    [
      'of another namespace',
      cnp({ endpointSelector: { matchLabels: { 'io.kubernetes.pod.namespace': 'b' } }, ingress: [{}] }),
    ],
    ['without a name', cnp({ endpointSelector: {}, ingress: [{}] }, { metadata: { namespace: 'a' } })],
    ['without an element', cnp({ endpointSelector: {}, ingress: [] })],
    ['with one rule that nobody can read', cnp({ endpointSelector: {}, ingress: [{}] }, { specs: [null] })],
  ])('%s', (_, result) => {
    expect([result.refused, result.rules]).toEqual([true, []]);
    expect(result.problems.map(({ code }) => code)).toContain('InvalidSpec');
  });
});

it('a policy that needs too much is closed: nothing is allowed, and what it denies is everything', () => {
  const metadata = { name: 'p', namespace: 'a' };
  const spec = {
    endpointSelector: WEB,
    ingress: [{ fromEntities: ['world'] }],
    egress: [],
    egressDeny: [{ toEntities: ['host'] }],
  };
  const result = parsePolicy(
    closedPolicy({ metadata, spec, specs: [spec] }, 'CiliumNetworkPolicy'),
    'CiliumNetworkPolicy',
  );
  expect([allowing(result), denying(result)]).toEqual([
    [],
    [
      { peers: 'any', ports: 'any' },
      { peers: 'any', ports: 'any' },
    ],
  ]);
  expect(result.rules.map(({ defaultDeny }) => defaultDeny)).toEqual(
    [1, 2].map(() => ({ ingress: true, egress: true })),
  );
  const network = (fields: Json) =>
    parsePolicy(closedPolicy({ metadata, spec: { podSelector: {}, ...fields } }, 'NetworkPolicy'), 'NetworkPolicy');
  for (const [fields, directions] of [
    [{ ingress: [{}] }, { ingress: true, egress: false }],
    [{ egress: [{}] }, { ingress: true, egress: true }],
    [
      { policyTypes: ['Egress'], egress: [{}] },
      { ingress: false, egress: true },
    ],
  ] as const) {
    const closed = network(fields);
    expect([closed.problems, allowing(closed), closed.rules[0]?.defaultDeny]).toEqual([[], [], directions]);
  }
});
