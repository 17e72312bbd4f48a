import { describe, expect, it } from '@jest/globals';
import fc from 'fast-check';
import { demandOf } from './demand.ts';
import { parsePolicy } from './parse.ts';

const cnp = (spec: object): object => ({ metadata: { name: 'p', namespace: 'a' }, ...spec });
const app = (value: string) => ({ matchLabels: { app: value } });
const KINDS = ['CiliumNetworkPolicy', 'CiliumClusterwideNetworkPolicy', 'NetworkPolicy'] as const;

describe('what a policy asks for', () => {
  it('is counted over all rules, lists and directions; a selector that is written twice is one', () => {
    const rule = {
      endpointSelector: {},
      ingress: [{ fromEndpoints: [app('x'), app('y')] }, {}],
      ingressDeny: [{ fromEndpoints: [app('x')] }],
      egress: [{ toEndpoints: [app('z')] }, { toCIDR: ['10.0.0.0/8'] }],
      egressDeny: [{ toEntities: ['world'] }],
    };
    expect(demandOf(cnp({ spec: rule }), 'CiliumNetworkPolicy')).toEqual({ selectors: 4, rules: 6, entries: 12 });
    const twice = { spec: rule, specs: [rule, { ...rule, egress: [{ toEndpoints: [app('w')] }] }] };
    expect(demandOf(cnp(twice), 'CiliumClusterwideNetworkPolicy')).toEqual({ selectors: 5, rules: 17, entries: 36 });
  });

  it('counts selectors of Services and CIDR groups', () => {
    const spec = {
      endpointSelector: {},
      egress: [
        { toServices: ['x', 'y', 'x'].map((value) => ({ k8sServiceSelector: { selector: app(value) } })) },
        { toCIDRSet: [{ cidrGroupSelector: app('x') }, { cidrGroupRef: 'g' }, { cidrGroupSelector: app('y') }] },
      ],
    };
    expect(demandOf(cnp({ spec }), 'CiliumNetworkPolicy')).toMatchObject({ selectors: 5 });
  });

  it('of a NetworkPolicy, too: addresses are no selectors', () => {
    const spec = {
      podSelector: {},
      ingress: [{ from: [{ podSelector: app('x') }, { namespaceSelector: {} }, { ipBlock: { cidr: '10.0.0.0/8' } }] }],
      egress: [{ to: [{ podSelector: app('x') }] }, {}],
    };
    expect(demandOf(cnp({ spec }), 'NetworkPolicy')).toEqual({ selectors: 3, rules: 3, entries: 7 });
  });

  it('never is less than what is read of it', () => {
    const value = fc.constantFrom('x', 'y', 'z');
    const selector = fc.oneof(
      value.map(app),
      fc
        .array(value, { minLength: 1 })
        .map((values) => ({ matchExpressions: [{ key: 'app', operator: 'In', values }] })),
    );
    const element = fc.array(selector, { maxLength: 4 }).map((fromEndpoints) => ({ fromEndpoints }));
    const rule = fc
      .array(element, { minLength: 1, maxLength: 4 })
      .map((ingress) => ({ endpointSelector: {}, ingress }));
    fc.assert(
      fc.property(fc.array(rule, { minLength: 1, maxLength: 3 }), (specs) => {
        const { rules, problems } = parsePolicy(cnp({ specs }), 'CiliumNetworkPolicy');
        expect(problems).toEqual([]);
        const elements = rules.flatMap((each) => each.elements);
        const peers = elements.flatMap((each) => (each.peers === 'any' ? [] : each.peers));
        const demand = demandOf(cnp({ specs }), 'CiliumNetworkPolicy');
        expect(demand.rules).toBe(elements.length);
        expect(demand.selectors).toBeGreaterThanOrEqual(new Set(peers.map((peer) => JSON.stringify(peer))).size);
      }),
    );
  });

  it('can be said of whatever somebody wrote', () => {
    fc.assert(
      fc.property(fc.jsonValue(), fc.constantFrom(...KINDS), (json, kind) => {
        const field = [json];
        for (const object of [json, { spec: json, specs: json }, { spec: { ingress: json, egress: json } }])
          expect(demandOf(object, kind)).toMatchObject({ rules: expect.any(Number) });
        demandOf({ spec: { ingress: [{ from: field, fromEndpoints: field, toEndpoints: json }] } }, kind);
      }),
    );
    let deep: unknown = 1;
    for (let depth = 0; depth < 50_000; depth += 1) deep = [deep];
    const spec = { ingress: [{ from: [{ podSelector: deep }], fromEndpoints: [deep] }] };
    for (const kind of KINDS) expect(demandOf({ spec }, kind)).toEqual({ selectors: 0, rules: 0, entries: 0 });
  });
});
