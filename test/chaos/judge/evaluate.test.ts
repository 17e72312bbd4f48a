import { describe, expect, it } from '@jest/globals';
import { type Labels, NAMESPACE_KEY, NAMESPACE_LABELS, type Rule } from '../world/policy.ts';
import { evaluate, type Question, type Who } from './evaluate.ts';

const pod = (labels: Labels, namespace = 'a'): Extract<Who, { kind: 'pod' }> => ({
  kind: 'pod',
  labels: { ...labels, [NAMESPACE_KEY]: namespace, [`${NAMESPACE_LABELS}team`]: namespace === 'a' ? 'red' : 'blue' },
});
const web = pod({ app: 'web' });
const api = pod({ app: 'api' });
const far = pod({ app: 'api' }, 'b');
const outside: Who = { kind: 'outside', address: '203.0.113.9' };
const unknown: Who = { kind: 'unknown' };

/** For the ingress of `web` from somebody on TCP 80, unless told otherwise. */
function said(
  rule: Partial<Rule>,
  peer: Who,
  rest: Partial<Question> & { namespace?: string | undefined } = {},
): string {
  const whole: Rule = { subject: { matchLabels: { app: 'web' } }, allow: {}, deny: {}, ...rule };
  const question: Question = { direction: 'ingress', subject: web, peer, protocol: 'TCP', port: 80, ...rest };
  const { enforced, allow, deny, defaultDeny } = evaluate(whole, 'namespace' in rest ? rest.namespace : 'a', question);
  if (!enforced) return 'silent';
  return deny ? 'deny' : allow ? 'allow' : defaultDeny ? 'default deny' : 'nothing';
}

const from = (...endpoints: readonly object[]): Rule['allow'] => ({ ingress: [{ endpoints }] });
const toApi = { matchLabels: { app: 'api' } };

describe('the language', () => {
  it.each([
    ['a peer that is selected', { allow: from(toApi) }, api, 'allow'],
    ['another peer', { allow: from(toApi) }, web, 'default deny'],
    ['the same labels in another namespace', { allow: from(toApi) }, far, 'default deny'],
    ['everybody of the namespace', { allow: from({}) }, api, 'allow'],
    ['everybody of the namespace, asked by another', { allow: from({}) }, far, 'default deny'],
    [
      'a selector that names namespaces',
      { allow: from({ matchExpressions: [{ key: NAMESPACE_KEY, operator: 'Exists' }] }) },
      far,
      'allow',
    ],
    ['a label of namespaces', { allow: from({ matchLabels: { [`${NAMESPACE_LABELS}team`]: 'blue' } }) }, far, 'allow'],
    ['an empty element', { allow: { ingress: [{}] } }, api, 'default deny'],
    ['ports of anybody', { allow: { ingress: [{ ports: [{ port: 80, protocol: 'ANY' }] }] } }, outside, 'allow'],
    ['other ports', { allow: { ingress: [{ ports: [{ port: 81, protocol: 'ANY' }] }] } }, outside, 'default deny'],
    ['another protocol', { allow: { ingress: [{ ports: [{ port: 80, protocol: 'UDP' }] }] } }, outside, 'default deny'],
    ['a prefix', { allow: { ingress: [{ cidrs: ['203.0.112.0/23'] }] } }, outside, 'allow'],
    ['another prefix', { allow: { ingress: [{ cidrs: ['203.0.114.0/23'] }] } }, outside, 'default deny'],
    ['a prefix never selects pods', { allow: { ingress: [{ cidrs: ['0.0.0.0/0'] }] } }, api, 'default deny'],
    ['deny before allow', { allow: from(toApi), deny: from(toApi) }, api, 'deny'],
    ['deny of others', { allow: from(toApi), deny: from({ matchLabels: { app: 'db' } }) }, api, 'allow'],
    ['no default deny', { deny: from(toApi), defaultDeny: { ingress: false } }, web, 'nothing'],
    ['who is unknown, to a deny', { deny: from(toApi), defaultDeny: { ingress: false } }, unknown, 'deny'],
    ['who is unknown, to an allow', { allow: from({}) }, unknown, 'default deny'],
    ['another subject', { subject: { matchLabels: { app: 'db' } }, allow: from(toApi) }, api, 'silent'],
    ['the other direction', { allow: { egress: [{ endpoints: [toApi] }] } }, api, 'silent'],
  ] as const satisfies readonly (readonly [string, Partial<Rule>, Who, string])[])(
    '%s',
    (_name, rule, peer, expected) => {
      expect(said(rule, peer)).toBe(expected);
    },
  );

  it.each([
    ['In', ['api', 'db'], true, false],
    ['NotIn', ['api'], false, true],
    ['Exists', undefined, true, false],
    ['DoesNotExist', undefined, false, true],
  ] as const)('%s selects by value, and by a label that is not there', (operator, values, present, absent) => {
    const rule = {
      allow: from({ matchExpressions: [{ key: 'app', operator, ...(values === undefined ? {} : { values }) }] }),
    };
    expect(said(rule, api)).toBe(present ? 'allow' : 'default deny');
    expect(said(rule, pod({ other: 'api' }))).toBe(absent ? 'allow' : 'default deny');
  });

  it('a clusterwide policy selects pods of all namespaces', () => {
    expect(said({ allow: from(toApi) }, far, { namespace: undefined })).toBe('allow');
    expect(said({ allow: from({}) }, outside, { namespace: undefined })).toBe('default deny');
    const subject = pod({ app: 'web' }, 'b');
    expect(said({ allow: from(toApi) }, api, { subject })).toBe('silent');
    expect(said({ allow: from(toApi) }, api, { subject, namespace: undefined })).toBe('allow');
  });
});
