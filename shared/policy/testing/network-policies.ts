/** fast-check arbitraries: NetworkPolicies that a Kubernetes API server takes, about the small world. */
import fc from 'fast-check';
import { namingPolicyArbitrary, type PolicyObject } from './worlds.ts';

const podSelector = fc.oneof(
  fc.constant({}),
  fc.record({
    matchLabels: fc.constantFrom<Record<string, string>[]>({ app: 'web' }, { app: 'api' }, { tier: 'back' }),
  }),
  fc.record({
    matchExpressions: fc.array(
      fc.oneof(
        fc.record({
          key: fc.constantFrom('app', 'tier', 'host'),
          operator: fc.constantFrom('In', 'NotIn'),
          values: fc.uniqueArray(fc.constantFrom('web', 'api', 'back', 'x'), { minLength: 1, maxLength: 2 }),
        }),
        fc.record({ key: fc.constantFrom('tier', 'host'), operator: fc.constantFrom('Exists', 'DoesNotExist') }),
      ),
      { minLength: 1, maxLength: 2 },
    ),
  }),
);

const namespaceSelector = fc.constantFrom<object[]>(
  {},
  { matchLabels: { team: 'blue' } },
  { matchExpressions: [{ key: 'team', operator: 'NotIn', values: ['red'] }] },
  { matchExpressions: [{ key: 'team', operator: 'Exists' }] },
  { matchExpressions: [{ key: 'other', operator: 'DoesNotExist' }] },
);

const ipBlock = fc.constantFrom<object[]>(
  { cidr: '0.0.0.0/0' },
  { cidr: '0.0.0.0/0', except: ['10.0.0.0/8'] },
  { cidr: '10.0.0.0/8', except: ['10.1.0.0/16', '10.244.0.0/16'] },
  { cidr: '10.1.2.3/32' },
  { cidr: '10.244.0.0/16' },
  { cidr: '::/0', except: ['2001:db8::/32'] },
);

const peer = fc.oneof(
  fc.record({ podSelector }),
  fc.record({ namespaceSelector }),
  fc.record({ podSelector, namespaceSelector }),
  fc.record({ ipBlock }),
);

const protocol = fc.constantFrom('TCP', 'UDP', 'SCTP', undefined);
const port = fc
  .oneof(
    fc.record({ protocol }),
    fc.record({ protocol, port: fc.constantFrom<(number | string)[]>(53, 80, 8080, 'http', 'HTTP', 'dns', 'gone') }),
    fc.record({ protocol, port: fc.constantFrom(53, 80, 8080), endPort: fc.constantFrom(8080, 8095, 65535) }),
  )
  .map((fields) => Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)));

const element = (side: 'from' | 'to') =>
  fc.record(
    { [side]: fc.array(peer, { maxLength: 2 }), ports: fc.array(port, { maxLength: 2 }) },
    { requiredKeys: [] },
  );

/** `policyTypes` names every direction that has rules, as a policy without warnings does. */
export const networkPolicyArbitrary: fc.Arbitrary<PolicyObject> = fc
  .record({
    namespace: fc.constantFrom('a', 'a', 'b'),
    podSelector,
    ingress: fc.option(fc.array(element('from'), { maxLength: 2 }), { nil: undefined }),
    egress: fc.option(fc.array(element('to'), { maxLength: 2 }), { nil: undefined }),
  })
  .map(({ namespace, podSelector: selector, ingress, egress }) => {
    const policyTypes = [
      ...(ingress !== undefined || egress === undefined ? ['Ingress'] : []),
      ...(egress === undefined ? [] : ['Egress']),
    ];
    const spec = {
      podSelector: selector,
      policyTypes,
      ...(ingress === undefined ? {} : { ingress }),
      ...(egress === undefined ? {} : { egress }),
    };
    const kind = 'NetworkPolicy';
    return { kind, object: { apiVersion: 'networking.k8s.io/v1', kind, metadata: { name: 'p', namespace }, spec } };
  });

/** Policies of all kinds, with port names. */
export const mixedPoliciesArbitrary: fc.Arbitrary<PolicyObject[]> = fc.array(
  fc.oneof(networkPolicyArbitrary, namingPolicyArbitrary),
  { maxLength: 4 },
);
