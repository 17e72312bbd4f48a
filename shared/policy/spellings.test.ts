/** Selectors that do not mean what they show (spec 2.2), and labels that nobody has: no deny denies nobody by them, no allow allows anybody. */
import { describe, expect, it } from '@jest/globals';
import { judgeFlow, parseObjects } from './testing/flows.ts';
import { cnp } from './testing/parsed.ts';

const NS = 'io.kubernetes.pod.namespace';
const web = { matchLabels: { app: 'web' } };
const spec = (lists: object) => ({ endpointSelector: web, ...lists });
const policy = (lists: object) => ({
  apiVersion: 'cilium.io/v2',
  kind: 'CiliumNetworkPolicy',
  metadata: { name: 'p', namespace: 'a' },
  spec: spec(lists),
});

const ODD: readonly (readonly [string, object, string])[] = [
  ['a namespace of source unspec', { matchLabels: { [`unspec:${NS}`]: 'b' } }, `matchLabels["unspec:${NS}"]`],
  [
    'a label of namespaces of source unspec',
    { matchExpressions: [{ key: 'unspec:io.cilium.k8s.namespace.labels.team', operator: 'Exists' }] },
    'matchExpressions[0].key',
  ],
  ['one key by two sources', { matchLabels: { app: 'api', 'any:app': 'db' } }, 'matchLabels["any:app"]'],
  ['a dotted reserved label', { matchLabels: { 'reserved.host': '' } }, 'matchLabels["reserved.host"]'],
  ['the label of the world', { matchLabels: { 'reserved:world': '' } }, 'matchLabels["reserved:world"]'],
];

describe.each(ODD)('%s', (_, selector, path) => {
  it('is refused by name in a peer: an allow selects nobody, a deny everybody', () => {
    const allow = cnp(spec({ ingress: [{ fromEndpoints: [selector] }] }));
    expect(allow.problems).toMatchObject([
      { code: 'UnsupportedField', path: `spec.ingress[0].fromEndpoints[0].${path}` },
    ]);
    expect([allow.refused, allow.rules[0]?.elements]).toMatchObject([false, [{ peers: [] }]]);
    const deny = cnp(spec({ ingressDeny: [{ fromEndpoints: [selector] }] }));
    expect(deny.rules[0]?.elements).toMatchObject([{ verdict: 'deny', peers: 'any' }]);
  });

  it('refuses the object in a subject', () => {
    const result = cnp({ endpointSelector: selector, ingress: [{}] });
    expect(result.problems).toMatchObject([{ code: 'InvalidSpec', path: `spec.endpointSelector.${path}` }]);
    expect(result.refused).toBe(true);
  });
});

it('ordinary keys stay what they are', () => {
  const selector = { matchLabels: { ':app': 'api', 'k8s.app': 'x', 'app.kubernetes.io/name': 'y', 'any:tier': 'z' } };
  expect(cnp(spec({ ingress: [{ fromEndpoints: [selector] }] })).problems).toEqual([]);
});

describe.each(['pod-template-hash', 'K8S:tier', 'container:id'])('a label that nobody has, %s', (key) => {
  const judged = (lists: object, flows: readonly string[]) => {
    const { rules } = parseObjects([policy(lists)]);
    for (const flow of flows) {
      const { expected, oracle, compiled } = judgeFlow(rules, flow, {});
      expect({ flow, oracle, compiled }).toEqual({ flow, oracle: expected, compiled: expected });
    }
  };
  const all = { fromEntities: ['all'] };

  it('lets a deny be of all whom its other labels select', () => {
    const deny = { fromEndpoints: [{ matchLabels: { app: 'api', [key]: 'x' } }] };
    judged({ ingress: [all], ingressDeny: [deny] }, ['api -> web tcp/80: deny', 'db -> web tcp/80: allow']);
    const alone = { fromEndpoints: [{ matchLabels: { [key]: 'x' } }] };
    judged({ ingress: [all], ingressDeny: [alone] }, ['api -> web tcp/80: deny', 'X -> web tcp/80: allow']);
    const excluded = { fromEndpoints: [{ matchExpressions: [{ key, operator: 'NotIn', values: ['x'] }] }] };
    judged({ ingress: [all], ingressDeny: [excluded] }, ['api -> web tcp/80: deny']);
  });

  it('lets an allow be of nobody', () => {
    for (const requirement of [
      { matchLabels: { [key]: 'x' } },
      { matchExpressions: [{ key, operator: 'DoesNotExist' }] },
    ])
      judged({ ingress: [{ fromEndpoints: [requirement] }] }, ['api -> web tcp/80: deny']);
  });
});
