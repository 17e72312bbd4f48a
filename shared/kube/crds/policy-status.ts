import { fields, list, type Schema, text, whole } from './schema.ts';

/** Status of a policy (design section 7). */
export const policyStatusSchema: Schema = fields(
  {
    observedGeneration: whole('Generation that this status is about.'),
    summary: fields(
      {
        nodes: text('Nodes that enforce this generation, of those that must: "5/5".'),
        endpoints: whole('Pods that the policy selects.'),
        rules: whole('Rule elements that are enforced.'),
      },
      'Reach of the policy.',
    ),
    conditions: {
      type: 'array',
      description: 'Valid, ResolvedRefs, Programmed and Ready.',
      'x-kubernetes-list-type': 'map',
      'x-kubernetes-list-map-keys': ['type'],
      items: fields(
        {
          type: text(
            'Valid: the policy can be read. ResolvedRefs: what it names exists. Programmed: it is in the kernel of every node that must enforce it. Ready: all three.',
          ),
          status: text('True, False or Unknown.'),
          reason: text('One word for the cause.'),
          message: text('What is wrong, where, and what stays enforced.'),
          observedGeneration: whole('Generation that this condition is about.'),
          lastTransitionTime: { type: 'string', format: 'date-time', description: 'When the status last changed.' },
        },
        undefined,
        ['type', 'status'],
      ),
    },
    failures: list(
      fields({ node: text('Node that failed.'), reason: text(), message: text() }),
      'At most five failures, by node.',
    ),
    failureCount: whole('How many failures there are.'),
  },
  'How far the policy is enforced. Written by the operator.',
);
