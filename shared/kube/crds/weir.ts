/** CRDs of group weir.dev: what the operator and the node agents tell each other. */
import { MOST_REPORTED_FAILURES } from '../weir-objects.ts';
import { policyStatusSchema } from './policy-status.ts';
import { crd, fields, flag, list, text, whole } from './schema.ts';

const port = fields(
  {
    protocol: text('TCP, UDP, SCTP, ICMP, ICMPv6, or a protocol without ports such as VRRP.'),
    from: whole('First port, or type of ICMP.'),
    to: whole('Last port, or type of ICMP.'),
    each: flag('Each pod by its own number, also where pods of equal labels give several.'),
    name: text("Name of a container port, in place of from and to: its number is each pod's own."),
  },
  undefined,
  ['protocol'],
);
const peer = fields({
  peerSet: text('Name of a PeerSet: its identities.'),
  cidr: text('A prefix.'),
  except: list(text(), 'Prefixes inside it that are left out.'),
  everyone: flag('The prefix is of an ipBlock: it selects every address in it, pods and nodes too.'),
  fqdn: text('Outside addresses that names of this pattern have.'),
  entity: text('A named scope.'),
});

export const weirCrds = (): object[] => [
  crd({
    group: 'weir.dev',
    version: 'v1alpha1',
    kind: 'ResolvedPolicy',
    plural: 'resolvedpolicies',
    singular: 'resolvedpolicy',
    shortNames: ['rpol'],
    categories: ['weir'],
    scope: 'Cluster',
    description: 'A policy as nodes read it: selectors replaced by peer sets. Written by the operator; do not edit.',
    properties: {
      spec: fields(
        {
          source: fields(
            {
              kind: text('CiliumNetworkPolicy, CiliumClusterwideNetworkPolicy or NetworkPolicy.'),
              namespace: text('Namespace of the policy.'),
              name: text('Name of the policy.'),
              uid: text('Its uid.'),
              generation: whole('Generation that was resolved.'),
            },
            'The policy that this comes from.',
            ['kind', 'name', 'uid', 'generation'],
          ),
          rules: list(
            fields(
              {
                subject: text('PeerSet of the pods that the rule is for.'),
                direction: text('ingress or egress.'),
                verdict: text('allow, deny, redirect or authenticate.'),
                peers: list(peer, 'Absent: any peer. Empty: nobody.'),
                ports: list(port, 'Absent: every protocol and port. Empty: none.'),
                dns: list(text(), 'Of a redirect: patterns of the names that may be asked for.'),
                defaultDeny: flag('Whether the rule turns on default deny in its direction.'),
                cookie: whole('Names the rule in drop events.'),
                path: text('Where in the policy the rule stands.'),
                log: text('Text shown with flows that the rule decides.'),
                labels: list(text(), 'Labels of its own.'),
              },
              undefined,
              ['subject', 'direction', 'verdict', 'defaultDeny', 'cookie', 'path'],
            ),
            'The rules.',
          ),
        },
        undefined,
        ['source', 'rules'],
      ),
      status: {
        ...policyStatusSchema,
        description: 'How far a NetworkPolicy is enforced; other policies say so themselves. Written by the operator.',
      },
    },
    statusSubresource: true,
    required: ['spec'],
    columns: [
      { name: 'Kind', type: 'string', jsonPath: '.spec.source.kind' },
      { name: 'Namespace', type: 'string', jsonPath: '.spec.source.namespace' },
      { name: 'Policy', type: 'string', jsonPath: '.spec.source.name' },
      { name: 'Generation', type: 'integer', jsonPath: '.spec.source.generation' },
      { name: 'Ready', type: 'string', jsonPath: ".status.conditions[?(@.type=='Ready')].status" },
      { name: 'Age', type: 'date', jsonPath: '.metadata.creationTimestamp' },
    ],
  }),
  crd({
    group: 'weir.dev',
    version: 'v1alpha1',
    kind: 'PeerSet',
    plural: 'peersets',
    singular: 'peerset',
    shortNames: ['peers'],
    categories: ['weir'],
    scope: 'Cluster',
    description: 'The identities that one selector matches. Written by the operator; do not edit.',
    properties: {
      spec: fields(
        {
          hash: text('Hash of the selector.'),
          selector: fields(
            {
              requirements: list(
                fields({ key: text('Label key with its source.'), operator: text(), values: list(text()) }, undefined, [
                  'key',
                  'operator',
                  'values',
                ]),
              ),
            },
            'The selector.',
            ['requirements'],
          ),
          identities: list(whole(), 'Numeric identities, ascending.'),
          slice: whole('Number of this slice, from 0.'),
          slices: whole('How many slices the set has.'),
        },
        undefined,
        ['hash', 'selector', 'identities', 'slice', 'slices'],
      ),
    },
    required: ['spec'],
    columns: [
      { name: 'Slice', type: 'integer', jsonPath: '.spec.slice' },
      { name: 'Slices', type: 'integer', jsonPath: '.spec.slices' },
      { name: 'Age', type: 'date', jsonPath: '.metadata.creationTimestamp' },
    ],
  }),
  crd({
    group: 'weir.dev',
    version: 'v1alpha1',
    kind: 'NodePolicyStatus',
    plural: 'nodepolicystatuses',
    singular: 'nodepolicystatus',
    shortNames: ['nps'],
    categories: ['weir'],
    scope: 'Cluster',
    description: 'What one node has in its kernel. Written by the agent of that node.',
    properties: {
      status: fields({
        policyVersion: text(
          'The resourceVersion up to which every change of a ResolvedPolicy is in the kernel, but for `failures`; also of those that select no pod of the node.',
        ),
        revision: whole('Policy revision of the agent that every endpoint of the node has in its kernel.'),
        counts: fields({
          endpoints: whole('Endpoints of the node.'),
          policies: whole('Policies that the node has read.'),
        }),
        failures: {
          ...list(
            fields({
              uid: text('Policy.'),
              generation: whole('Generation that failed.'),
              reason: text(),
              message: text(),
            }),
            'What the node could not do: the first of it, by uid of the policy.',
          ),
          maxItems: MOST_REPORTED_FAILURES,
        },
        failureCount: whole('How many failures there are.'),
      }),
    },
    columns: [
      { name: 'Revision', type: 'integer', jsonPath: '.status.revision' },
      { name: 'Policy-Version', type: 'string', jsonPath: '.status.policyVersion' },
      { name: 'Endpoints', type: 'integer', jsonPath: '.status.counts.endpoints' },
      { name: 'Failures', type: 'integer', jsonPath: '.status.failureCount' },
      { name: 'Age', type: 'date', jsonPath: '.metadata.creationTimestamp' },
    ],
  }),
];
