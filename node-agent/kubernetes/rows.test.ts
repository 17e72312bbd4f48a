import { describe, expect, it } from '@jest/globals';
import type { CiliumIdentity, PeerSet, Pod, ResolvedPolicyObject } from '@weir/kube';
import { identityParts, mergePeerSet, mergePolicy, peerSetParts, podParts, policyParts } from './rows.ts';

it('of two ResolvedPolicies of one policy the newer generation counts, in whichever order they are read', () => {
  const [old, now] = [1, 2].map((generation) => ({
    uid: 'u',
    kind: 'CiliumNetworkPolicy' as const,
    name: 'p',
    generation,
    rules: [],
  }));
  if (old === undefined || now === undefined) throw new Error('no policies');
  for (const parts of [[old, now], [now, old], [now]]) expect(mergePolicy('u', parts)).toBe(now);
  expect(mergePolicy('u', [])).toBeUndefined();
});

describe('what only an administrator writes, in a shape that nothing can be derived from, is refused', () => {
  const source = { kind: 'CiliumNetworkPolicy', namespace: 'a', name: 'p', uid: 'u', generation: 1 };
  const rule = { subject: 'h', direction: 'ingress', verdict: 'allow', defaultDeny: true, cookie: 1, path: 'spec' };
  const policy = (fields: object, from: object = source) =>
    ({ spec: { source: from, rules: [{ ...rule, ...fields }] } }) as unknown as ResolvedPolicyObject;

  it('a rule', () => {
    const peers = [{ peerSet: 'h' }, { cidr: '10.0.0.0/8', except: ['10.1.0.0/16'] }, { entity: 'a later one' }];
    const ports = [
      { protocol: 'TCP', from: 0, to: 65535 },
      { protocol: 'A-LATER-ONE', name: 'web' },
    ];
    expect([...policyParts(policy({ peers, ports, log: 'x' })).keys()]).toEqual(['u']);
  });

  it.each([
    ['direction', { direction: null }],
    ['verdict', { verdict: 1 }],
    ['defaultDeny', { defaultDeny: 'yes' }],
    ['cookie', { cookie: '1' }],
    ['path', { path: {} }],
    ['log', { log: 1 }],
    ['labels', { labels: ['k8s:a=b', 7] }],
    ['peers', { peers: {} }],
    ['peers', { peers: [{ cidr: 'x' }] }],
    ['peers', { peers: [{ cidr: '10.0.0.0/8', except: ['x'] }] }],
    ['peers', { peers: [{ cidr: '10.1.2.3/8' }] }],
    ['peers', { peers: [{ peerSet: 'h', entity: 'all' }] }],
    ['ports', { ports: 5 }],
    ['ports', { ports: [null] }],
    ['ports', { ports: [{ protocol: 'TCP' }] }],
    ['ports', { ports: [{ protocol: 'TCP', from: 1, to: 1e9 }] }],
  ])('its %s: %j', (field, fields) => {
    expect(() => policyParts(policy(fields))).toThrow(`spec.rules[0].${field} is `);
  });

  it("the policy's name", () => {
    expect(() => policyParts(policy({}, { ...source, namespace: [] }))).toThrow('spec.source is ');
  });

  it.each([null, {}, { requirements: {} }, { requirements: [{ key: 'k8s:a', operator: 'In', values: null }] }])(
    'a selector: %j',
    (selector) => {
      const spec = { hash: 'h', selector, identities: [], slice: 0, slices: 1 };
      expect(() => peerSetParts({ spec } as unknown as PeerSet)).toThrow('spec.selector is ');
    },
  );

  it('a label of an identity', () => {
    const object = { metadata: { name: '300' }, 'security-labels': { 'k8s:a': 1 } };
    expect(() => identityParts(object as unknown as CiliumIdentity)).toThrow('security-labels is ');
  });

  it('an identity of more labels than one may have', () => {
    const many = Object.fromEntries(Array.from({ length: 129 }, (_, at) => [`k8s:l${at}`, '']));
    const object = { metadata: { name: '300' }, 'security-labels': many };
    expect(() => identityParts(object as unknown as CiliumIdentity)).toThrow('129 labels, of at most 128');
  });

  it('a member of a peer set that is no number is nobody', () => {
    const spec = { hash: 'h', selector: { requirements: [] }, identities: ['x', 300, null, 256], slice: 0, slices: 1 };
    expect(mergePeerSet('h', [spec as unknown as PeerSet['spec']], undefined)?.identities).toEqual([256, 300]);
  });
});

it.each([
  [256, undefined],
  [257, '257 named ports, of at most 256'],
])('of a pod with %i named ports all are kept, or none and how many they are', (count, excess) => {
  const ports = Array.from({ length: count }, (_, at) => ({ name: `p${at}`, containerPort: 1 + at }));
  const object: Pod = {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name: 'p', namespace: 'd', uid: 'u' },
    spec: { nodeName: 'n1', containers: [{ name: 'c', ports: [...ports, ...ports] }] },
  };
  const row = podParts('n1')(object).get('d/p');
  expect([row?.namedPorts.length, row?.portExcess]).toEqual([excess === undefined ? count : 0, excess]);
});
