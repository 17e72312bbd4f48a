/** Subjects and labels that are not those of a pod itself: pods that are not known yet, service accounts, nodes. */
import { describe, expect, it } from '@jest/globals';
import { matches, podIdentityLabels } from '@weir/labels';
import { parsePolicy } from './parse.ts';
import { resolve } from './resolve.ts';
import { ruleLabels } from './rule-labels.ts';
import { cnp, found } from './testing/parsed.ts';
import type { ParseResult } from './types.ts';

const ccnp = (...specs: readonly object[]): ParseResult =>
  parsePolicy({ metadata: { name: 'p' }, specs }, 'CiliumClusterwideNetworkPolicy');
const INIT = { matchLabels: { 'reserved:init': '' } };
const POD = podIdentityLabels({ namespace: 'a' });
/** Of an endpoint that the API made: it is in the cluster, and in no namespace. */
const { 'k8s:io.kubernetes.pod.namespace': _, ...PLACELESS } = POD;

/** Whom a rule's only peer selects: a pod, one without a namespace, what is not in the cluster. */
function selected({ rules }: ParseResult, index = 0): readonly boolean[] {
  const { peers } = rules[index]?.elements[0] ?? {};
  return [POD, PLACELESS, { 'reserved:init': '' }, { 'reserved:world': '' }].map(
    (labels) =>
      Array.isArray(peers) && peers.some((peer) => peer.kind === 'endpoints' && matches(peer.selector, labels)),
  );
}

describe('a clusterwide rule for pods that are not known yet', () => {
  it('selects such pods', () => {
    const [rule] = ccnp({ endpointSelector: INIT, ingress: [{}] }).rules;
    expect(rule && [matches(rule.subject, { 'reserved:init': '' }), matches(rule.subject, POD)]).toEqual([true, false]);
  });

  it('needs no namespace of its peers, but that they are in the cluster; another rule of the policy does', () => {
    const of = (endpointSelector: object) => ({ endpointSelector, ingress: [{ fromEndpoints: [{}] }] });
    const both = ccnp(of(INIT), of({}));
    expect(selected(both)).toEqual([true, true, false, false]);
    expect(selected(both, 1)).toEqual([true, false, false, false]);
    const excluding = { matchExpressions: [{ key: 'reserved:init', operator: 'DoesNotExist' }] };
    expect(selected(ccnp(of(excluding)))).toEqual([true, false, false, false]);
  });

  it('a namespace that is only excluded stays one of pods', () => {
    const peer = { matchExpressions: [{ key: 'io.kubernetes.pod.namespace', operator: 'NotIn', values: ['b'] }] };
    const result = ccnp({ endpointSelector: INIT, ingress: [{ fromEndpoints: [peer] }] });
    expect(selected(result)).toEqual([true, false, false, false]);
  });
});

it('a service account selects pods, as subject and as peer', () => {
  const account = (name: string) => ({ matchLabels: { 'io.cilium.k8s.policy.serviceaccount': name } });
  const pod = (serviceAccount: string) => podIdentityLabels({ namespace: 'a', serviceAccount });
  const { problems, rules } = cnp({ endpointSelector: account('web'), ingress: [{ fromEndpoints: [account('api')] }] });
  expect(problems).toEqual([]);
  const [rule] = rules;
  expect(['web', 'api'].map((name) => rule && matches(rule.subject, pod(name)))).toEqual([true, false]);
  const [peer] = (rule?.elements[0]?.peers ?? []) as readonly { readonly selector: Parameters<typeof matches>[0] }[];
  expect(['web', 'api'].map((name) => peer && matches(peer.selector, pod(name)))).toEqual([false, true]);
});

describe('a rule for nodes', () => {
  it('is refused by name, and so is what is wrong in its selector', () => {
    const of = (nodeSelector: object) => ccnp({ nodeSelector, ingress: [{ fromEntities: ['all'] }] });
    expect(found(of({ matchLabels: { zone: 'a' } }))).toEqual(['UnsupportedField specs[0].nodeSelector']);
    expect(found(of({ matchLabel: {} }))).toContain('InvalidSpec specs[0].nodeSelector.matchLabel');
    expect(of({}).rules).toEqual([]);
  });
});

it('groups are refused by name', () => {
  const { problems } = cnp({
    endpointSelector: {},
    egress: [{ toGroups: [{ aws: { securityGroupsIds: ['sg-1'] } }] }],
  });
  expect(problems).toMatchObject([{ code: 'UnsupportedField', path: 'spec.egress[0].toGroups' }]);
});

describe('labels of a rule', () => {
  const KEY = 'k8s:io.cilium.k8s.policy';
  const own = [
    { key: 'team', value: 'red' },
    { key: 'a', source: 'k8s' },
  ];
  it('are what it is derived from, and its own, sorted', () => {
    const { rules, problems } = cnp({ endpointSelector: {}, labels: own, ingress: [{}] });
    expect(problems).toEqual([]);
    const [rule] = resolve(rules, { cookieOf: () => 1 }).rules;
    const source = { kind: 'CiliumNetworkPolicy', namespace: 'a', name: 'p', uid: 'u' } as const;
    expect(ruleLabels(source, rule?.labels)).toEqual([
      'k8s:a=',
      `${KEY}.derived-from=CiliumNetworkPolicy`,
      `${KEY}.name=p`,
      `${KEY}.namespace=a`,
      `${KEY}.uid=u`,
      'unspec:team=red',
    ]);
  });

  it('name no namespace of a clusterwide policy, and nothing but its own of an imported rule', () => {
    const { rules } = cnp({ endpointSelector: {}, ingress: [{}] });
    const [rule] = resolve(rules, { cookieOf: () => 1 }).rules;
    expect(rule).not.toHaveProperty('labels');
    expect(ruleLabels({ kind: 'CiliumClusterwideNetworkPolicy', name: 'p', uid: 'u' })).toEqual([
      `${KEY}.derived-from=CiliumClusterwideNetworkPolicy`,
      `${KEY}.name=p`,
      `${KEY}.uid=u`,
    ]);
    expect(ruleLabels({ kind: 'BareRules', name: 'x', uid: 'u' }, ['k8s:a=b'])).toEqual(['k8s:a=b']);
  });
});
