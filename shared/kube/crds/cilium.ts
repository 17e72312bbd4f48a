/** CRDs of group cilium.io: names and shape that existing manifests and habits rely on. */
import { CIDR } from './patterns.ts';
import { policyStatusSchema } from './policy-status.ts';
import { type RuleKind, ruleSchema, rulesSchema } from './rule.ts';
import { type CrdSpec, crd, fields, list, map, open, text, whole } from './schema.ts';

const CATEGORIES = ['cilium'];
const POLICY_CATEGORIES = ['cilium', 'ciliumpolicy'];

const condition = (type: string, field: string): string => `.status.conditions[?(@.type=='${type}')].${field}`;

const policyColumns: NonNullable<CrdSpec['columns']> = [
  { name: 'Ready', type: 'string', jsonPath: condition('Ready', 'status') },
  { name: 'Programmed', type: 'string', jsonPath: condition('Programmed', 'status') },
  { name: 'Reason', type: 'string', jsonPath: condition('Ready', 'reason') },
  // Side by side: where they differ, the columns before speak of another generation than the one that was applied.
  { name: 'Generation', type: 'integer', jsonPath: '.metadata.generation' },
  { name: 'Observed', type: 'integer', jsonPath: '.status.observedGeneration' },
  { name: 'Nodes', type: 'string', jsonPath: '.status.summary.nodes' },
  { name: 'Endpoints', type: 'integer', jsonPath: '.status.summary.endpoints' },
  { name: 'Rules', type: 'integer', jsonPath: '.status.summary.rules' },
  { name: 'Valid', type: 'string', jsonPath: condition('Valid', 'status') },
  { name: 'Age', type: 'date', jsonPath: '.metadata.creationTimestamp' },
  { name: 'Message', type: 'string', jsonPath: condition('Ready', 'message'), priority: 1 },
];

const policyProperties = (kind: RuleKind): CrdSpec['properties'] => ({
  spec: ruleSchema(kind, true),
  specs: rulesSchema(kind),
  status: policyStatusSchema,
});

const addressing = list(fields({ ipv4: text('IPv4 address.'), ipv6: text('IPv6 address.') }), 'Addresses of the pod.');
const namedPorts = list(
  fields({ name: text('Name of the port.'), port: whole('Its number.'), protocol: text('TCP, UDP or SCTP.') }),
  'Ports of the pod that have a name.',
);
const enforcement = fields({
  enforcing: { type: 'boolean', description: 'Whether a policy is enforced in this direction.' },
  state: text('Enforcement in this direction.'),
});

export const ciliumCrds = (): object[] => [
  crd({
    group: 'cilium.io',
    version: 'v2',
    kind: 'CiliumNetworkPolicy',
    plural: 'ciliumnetworkpolicies',
    singular: 'ciliumnetworkpolicy',
    shortNames: ['cnp', 'ciliumnp'],
    categories: POLICY_CATEGORIES,
    scope: 'Namespaced',
    description: 'What pods of one namespace may send and receive.',
    properties: policyProperties('CiliumNetworkPolicy'),
    columns: policyColumns,
    statusSubresource: true,
  }),
  crd({
    group: 'cilium.io',
    version: 'v2',
    kind: 'CiliumClusterwideNetworkPolicy',
    plural: 'ciliumclusterwidenetworkpolicies',
    singular: 'ciliumclusterwidenetworkpolicy',
    shortNames: ['ccnp'],
    categories: POLICY_CATEGORIES,
    scope: 'Cluster',
    description: 'What pods of all namespaces may send and receive.',
    properties: policyProperties('CiliumClusterwideNetworkPolicy'),
    columns: policyColumns,
    statusSubresource: true,
  }),
  crd({
    group: 'cilium.io',
    version: 'v2',
    earlier: ['v2alpha1'],
    kind: 'CiliumCIDRGroup',
    plural: 'ciliumcidrgroups',
    singular: 'ciliumcidrgroup',
    shortNames: ['ccg'],
    categories: CATEGORIES,
    scope: 'Cluster',
    description: 'Addresses outside of the cluster that policies name together: cidrGroupRef, cidrGroupSelector.',
    properties: {
      spec: open(
        { externalCIDRs: list(text(undefined, { pattern: CIDR }), 'Prefixes, such as 192.0.2.0/24. May be empty.') },
        'What is in the group.',
        { required: ['externalCIDRs'] },
      ),
    },
    required: ['spec'],
    columns: [
      { name: 'CIDRs', type: 'string', jsonPath: '.spec.externalCIDRs' },
      { name: 'Age', type: 'date', jsonPath: '.metadata.creationTimestamp' },
    ],
  }),
  crd({
    group: 'cilium.io',
    version: 'v2',
    kind: 'CiliumIdentity',
    plural: 'ciliumidentities',
    singular: 'ciliumidentity',
    shortNames: ['ciliumid'],
    categories: CATEGORIES,
    scope: 'Cluster',
    description: 'A number for one set of labels. The name is the number.',
    properties: {
      'security-labels': map(text(), 'Labels of the identity, source:key to value.'),
    },
    required: ['security-labels'],
    columns: [
      { name: 'Namespace', type: 'string', jsonPath: '.metadata.labels.io\\.kubernetes\\.pod\\.namespace' },
      { name: 'Age', type: 'date', jsonPath: '.metadata.creationTimestamp' },
    ],
  }),
  crd({
    group: 'cilium.io',
    version: 'v2',
    kind: 'CiliumEndpoint',
    plural: 'ciliumendpoints',
    singular: 'ciliumendpoint',
    shortNames: ['cep', 'ciliumep'],
    categories: CATEGORIES,
    scope: 'Namespaced',
    description: 'A pod as its node enforces it. Written by the node agent.',
    properties: {
      status: open(
        {
          id: whole('Number of the endpoint on its node.'),
          identity: fields(
            { id: whole('Numeric identity.'), labels: list(text(), 'Labels of the identity.') },
            'Identity of the pod.',
          ),
          networking: fields({ addressing, node: text('Address of the node.') }, 'Addresses.'),
          policy: fields({ ingress: enforcement, egress: enforcement }, 'Enforcement by direction.'),
          state: text('State of the endpoint: ready when its policy is in the kernel.'),
          'named-ports': namedPorts,
        },
        'State of the endpoint.',
      ),
    },
    columns: [
      { name: 'Endpoint ID', type: 'integer', jsonPath: '.status.id' },
      { name: 'Identity ID', type: 'integer', jsonPath: '.status.identity.id' },
      { name: 'Ingress', type: 'boolean', jsonPath: '.status.policy.ingress.enforcing' },
      { name: 'Egress', type: 'boolean', jsonPath: '.status.policy.egress.enforcing' },
      { name: 'State', type: 'string', jsonPath: '.status.state' },
      { name: 'IPv4', type: 'string', jsonPath: '.status.networking.addressing[0].ipv4' },
      { name: 'IPv6', type: 'string', jsonPath: '.status.networking.addressing[0].ipv6' },
    ],
    // No status subresource: the agent writes the whole object at once, status included.
  }),
  crd({
    group: 'cilium.io',
    version: 'v2alpha1',
    kind: 'CiliumEndpointSlice',
    plural: 'ciliumendpointslices',
    singular: 'ciliumendpointslice',
    shortNames: ['ces'],
    categories: CATEGORIES,
    scope: 'Cluster',
    description: 'Up to 100 pods of one namespace: how nodes learn which address has which identity.',
    properties: {
      namespace: text('Namespace of the pods.'),
      endpoints: list(
        fields(
          {
            name: text('Name of the pod.'),
            id: whole('Number of the endpoint on its node; 0 when not known.'),
            identity: whole('Numeric identity.'),
            networking: fields({ addressing, node: text('Address of the node.') }, 'Addresses.', ['addressing']),
            'named-ports': namedPorts,
          },
          undefined,
          ['name', 'identity'],
        ),
        'The pods.',
      ),
    },
    required: ['endpoints'],
    columns: [
      { name: 'Namespace', type: 'string', jsonPath: '.namespace' },
      { name: 'Age', type: 'date', jsonPath: '.metadata.creationTimestamp' },
    ],
  }),
];
