/** CiliumCIDRGroups: what they list, and what names them. Verdicts: worked-verdicts.ts, rows 70, 71, 78. */
import { describe, expect, it } from '@jest/globals';
import { cidrGroupView, parseCidrGroup } from './cidr-groups.ts';
import { parseBareRules, parsePolicy } from './parse.ts';

const VIEW = cidrGroupView([
  { name: 'edge', labels: { team: 'net' }, cidrs: ['10.1.0.0/16', '2001:db8::/32'] },
  { name: 'office', labels: { team: 'net', site: 'x' }, cidrs: ['192.0.2.0/24'] },
  { name: 'none', labels: {}, cidrs: [] },
]);
const AT = 'spec.ingress[0].fromCIDRSet[0]';

function read(item: object, deny = false, cidrGroups = VIEW) {
  const spec = { endpointSelector: {}, [deny ? 'ingressDeny' : 'ingress']: [{ fromCIDRSet: [item] }] };
  const object = { metadata: { name: 'p', namespace: 'a' }, spec };
  const { rules, problems, cidrGroups: refs } = parsePolicy(object, 'CiliumNetworkPolicy', { cidrGroups });
  return {
    peers: rules[0]?.elements[0]?.peers,
    problems: problems.map(({ code, path, message }) => `${code} ${path}: ${message}`),
    refs: refs.map(({ path, found }) => `${path}: ${found.join()}`),
  };
}

const cidr = (text: string, ...except: string[]) => ({ kind: 'cidr', cidr: { cidr: text, except } });

describe('a rule that names groups', () => {
  it('has their CIDRs as peers, by name and by labels', () => {
    expect(read({ cidrGroupRef: 'edge' })).toEqual({
      peers: [cidr('10.1.0.0/16'), cidr('2001:db8::/32')],
      problems: [],
      refs: [`${AT}.cidrGroupRef: edge`],
    });
    expect(read({ cidrGroupSelector: { matchLabels: { team: 'net' } } })).toEqual({
      peers: [cidr('10.1.0.0/16'), cidr('2001:db8::/32'), cidr('192.0.2.0/24')],
      problems: [],
      refs: [`${AT}.cidrGroupSelector: edge,office`],
    });
    const unsited = { matchExpressions: [{ key: 'site', operator: 'DoesNotExist' }] };
    expect(read({ cidrGroupSelector: unsited }).refs).toEqual([`${AT}.cidrGroupSelector: edge,none`]);
    expect(read({ cidrGroupSelector: {} }).refs).toEqual([`${AT}.cidrGroupSelector: edge,office,none`]);
  });

  it('leaves out of them what it excepts, whole CIDRs too', () => {
    expect(read({ cidrGroupRef: 'edge', except: ['10.1.2.0/24', '192.0.2.0/24'] }).peers).toEqual([
      cidr('10.1.0.0/16', '10.1.2.0/24'),
      cidr('2001:db8::/32'),
    ]);
    expect(read({ cidrGroupRef: 'edge', except: ['10.0.0.0/8'] }).peers).toEqual([cidr('2001:db8::/32')]);
    expect(read({ cidrGroupRef: 'edge', except: ['::/0', '0.0.0.0/0'] }).peers).toEqual([]);
  });

  it('is of nobody by a group that is missing or empty', () => {
    for (const deny of [false, true])
      for (const name of ['gone', 'none'])
        expect(read({ cidrGroupRef: name }, deny)).toMatchObject({ peers: [], problems: [] });
  });

  it.each([
    [{ cidrGroupRef: 'Not_a_name' }, `${AT}.cidrGroupRef`, 'is no name of a CiliumCIDRGroup'],
    [{ cidrGroupRef: 'edge', except: ['10.1.2.3'] }, `${AT}.except[0]`, '10.1.2.3'],
    [{ cidrGroupRef: 'edge', except: [7] }, `${AT}.except[0]`, '7 is not a CIDR'],
    [{ cidrGroupSelector: null }, `${AT}.cidrGroupSelector`, 'null would select every group'],
    [{ cidrGroupSelector: { matchLabels: { 'k8s:team': 'net' } } }, `${AT}.cidrGroupSelector`, 'k8s:team'],
    [{ cidrGroupSelector: { matchLabel: {} } }, `${AT}.cidrGroupSelector.matchLabel`, 'unknown field'],
  ])('of %j allows nothing and denies the world', (item, path, message) => {
    const allowed = read(item);
    expect(allowed.problems).toEqual([expect.stringMatching(/^InvalidSpec /)]);
    expect(allowed.problems[0]).toContain(path);
    expect(allowed.problems[0]).toContain(message);
    expect(allowed.peers).toEqual([]);
    expect(read(item, true).peers).toEqual([{ kind: 'entity', entity: 'world' }]);
  });

  it('allows nothing by a group that cannot be read, and denies the world', () => {
    const torn = cidrGroupView([
      { name: 'torn', labels: {}, cidrs: ['10.1.0.0/16'], unreadable: 'spec.externalCIDRs[1]: "10.2" is no CIDR' },
    ]);
    expect(read({ cidrGroupRef: 'torn' }, false, torn)).toMatchObject({
      peers: [],
      problems: [`InvalidSpec ${AT}.cidrGroupRef: CiliumCIDRGroup torn: spec.externalCIDRs[1]: "10.2" is no CIDR`],
    });
    expect(read({ cidrGroupRef: 'torn' }, true, torn).peers).toEqual([{ kind: 'entity', entity: 'world' }]);
  });

  it('may come to 50,000 CIDRs', () => {
    const large = cidrGroupView([
      {
        name: 'large',
        labels: {},
        cidrs: Array.from({ length: 25_000 }, (_, i) => `10.${i >> 8}.${i & 255}.0/24`),
      },
    ]);
    const policy = (times: number) => ({
      metadata: { name: 'p', namespace: 'a' },
      spec: {
        endpointSelector: {},
        egress: [{ toCIDRSet: Array.from({ length: times }, () => ({ cidrGroupRef: 'large' })) }],
      },
    });
    expect(parsePolicy(policy(2), 'CiliumNetworkPolicy', { cidrGroups: large }).problems).toEqual([]);
    expect(parsePolicy(policy(3), 'CiliumNetworkPolicy', { cidrGroups: large }).problems).toMatchObject([
      { code: 'BudgetExceeded', path: 'spec.egress[0].toCIDRSet[2].cidrGroupRef' },
    ]);
  });

  it('looks through 100,000 groups at most, and at 50,000 CIDRs, whatever it writes', () => {
    let looks = 0;
    const groups = Array.from({ length: 500 }, (_, i) => ({ name: `g${i}`, labels: {}, cidrs: [] as string[] }));
    const counting = {
      get: () => ({
        name: 'large',
        labels: {},
        cidrs: Array.from({ length: 20_000 }, (_, i) => `10.${i >> 8}.${i & 255}.0/24`),
      }),
      *all() {
        for (const group of groups) {
          looks += 1;
          yield group;
        }
      },
    };
    const read = (items: object[]) => {
      const spec = { endpointSelector: {}, ingress: [{ fromCIDRSet: items }] };
      return parsePolicy({ metadata: { name: 'p', namespace: 'a' }, spec }, 'CiliumNetworkPolicy', {
        cidrGroups: counting,
      });
    };
    const distinct = read(
      Array.from({ length: 1000 }, (_, i) => ({ cidrGroupSelector: { matchLabels: { of: `${i}` } } })),
    );
    expect(looks).toBeLessThan(101_000);
    expect(distinct.problems[0]).toMatchObject({
      code: 'BudgetExceeded',
      path: 'spec.ingress[0].fromCIDRSet[200].cidrGroupSelector',
    });
    const repeated = read(Array.from({ length: 1000 }, () => ({ cidrGroupSelector: {} })));
    expect(repeated.problems[0]).toMatchObject({
      code: 'BudgetExceeded',
      path: 'spec.ingress[0].fromCIDRSet[199].cidrGroupSelector',
    });
    expect(new Set(repeated.cidrGroups.map(({ found }) => found)).size).toBe(1);
    // What is excepted is looked at, too.
    const excepted = read(Array.from({ length: 3 }, () => ({ cidrGroupRef: 'large', except: ['10.0.0.0/8'] })));
    expect(excepted.problems).toMatchObject([
      { code: 'BudgetExceeded', path: 'spec.ingress[0].fromCIDRSet[2].cidrGroupRef' },
    ]);
  });

  it('is not supported among imported rules', () => {
    const { problems } = parseBareRules([
      { endpointSelector: {}, ingress: [{ fromCIDRSet: [{ cidrGroupRef: 'edge' }] }] },
    ]);
    expect(problems).toMatchObject([{ code: 'UnsupportedField', path: '[0].ingress[0].fromCIDRSet[0].cidrGroupRef' }]);
  });
});

describe('a group', () => {
  it('has canonical CIDRs, each once, in order', () => {
    const { cidrs, problems } = parseCidrGroup({
      externalCIDRs: ['2001:DB8::1/32', '10.1.2.3/16', '10.1.0.0/16', '10.0.0.0/8'],
    });
    expect(problems).toEqual([]);
    expect(cidrs).toEqual(['10.0.0.0/8', '10.1.0.0/16', '2001:db8::/32']);
    expect(parseCidrGroup({ externalCIDRs: [] })).toEqual({ cidrs: [], problems: [] });
  });

  it.each([
    [undefined, 'spec'],
    [{}, 'spec.externalCIDRs'],
    [{ externalCIDRs: null }, 'spec.externalCIDRs'],
    [{ externalCIDRs: '10.0.0.0/8' }, 'spec.externalCIDRs'],
    [{ externalCIDRs: ['10.0.0.0/8', '10.0.0.1'] }, 'spec.externalCIDRs[1]'],
    [{ externalCIDRs: ['::ffff:10.0.0.0/104'] }, 'spec.externalCIDRs[0]'],
    [{ externalCIDRs: [], externalCIDR: [] }, 'spec.externalCIDR'],
  ])('of %j has a problem', (spec, path) => {
    expect(parseCidrGroup(spec).problems).toMatchObject([{ code: 'InvalidSpec', path }]);
  });
});
