/**
 * The rule language of CNP and CCNP as a structural schema. It types and explains every field, refuses what the operator would refuse whatever else is
 * written, and keeps what it does not know: a pruned field could widen a policy silently (a misspelt peer would become "any peer"), so the operator
 * must see it and say so. Nothing that the operator reads is refused here (`test/policy-schema.test.ts`).
 *
 * Rules in CEL are for one rule and for its elements: deeper, an API server would not take them, for what they may cost.
 */
import { CIDR_OR_ADDRESS, PRINTABLE } from './patterns.ts';
import { cidrRule, ENTITY_NAMES, group, looseSelector, selector, service } from './rule-peers.ts';
import { fqdn, icmpRule, portRule } from './rule-ports.ts';
import { flag, list, open, rules, type Schema, text } from './schema.ts';

export type RuleKind = 'CiliumNetworkPolicy' | 'CiliumClusterwideNetworkPolicy';

/** Entries that all lists of a policy may have together (MOST_ENTRIES of the parser), which bounds what a rule in CEL may cost. */
const MOST_ENTRIES = 50_000;

const PORTS = 'Ports of the traffic. Absent: every protocol and port.';

/** CEL: the list is there and has an item. */
const filled = (field: string): string => `has(self.${field}) && size(self.${field}) > 0`;

function elementRules(peers: readonly string[]): Schema {
  const lists = peers.map((field) => `(${filled(field)} ? 1 : 0)`);
  return rules(
    [
      `!(${filled('toPorts')} && ${filled('icmps')})`,
      'toPorts and icmps are in one element: split them into two elements',
    ],
    [
      `${lists.join(' + ')} <= 1`,
      `one element names peers in two ways: write one of ${peers.join(', ')} in each element, with its own ports`,
    ],
  );
}

/** @param alone an element of `spec`; those of `specs` are too many for rules in CEL. */
function element(direction: 'ingress' | 'egress', deny: boolean, alone: boolean): Schema {
  const to = direction === 'egress';
  const word = to ? 'to' : 'from';
  const side = to ? 'Destinations' : 'Sources';
  const peers = {
    [`${word}Endpoints`]: list(
      selector('Pods by their labels.'),
      `${side}: pods. Own namespace unless the selector names one.`,
    ),
    [`${word}CIDR`]: list(text(undefined, { pattern: CIDR_OR_ADDRESS }), `${side}: prefixes outside of the cluster.`),
    [`${word}CIDRSet`]: list(cidrRule, `${side}: prefixes outside of the cluster, with exceptions.`),
    [`${word}Entities`]: list(
      text(undefined, { enum: ENTITY_NAMES }),
      `${side}: named scopes such as world, cluster, host or kube-apiserver.`,
    ),
    [`${word}Groups`]: list(group, `${side}: instances of a cloud provider.`, { minItems: 1 }),
    [`${word}Nodes`]: list(selector('Nodes by their labels.'), `${side}: nodes.`),
    ...(to ? { toServices: list(service, 'Destinations: backends of services.', { minItems: 1 }) } : {}),
    ...(to && !deny
      ? { toFQDNs: list(fqdn, 'Destinations: addresses that DNS names resolve to.', { minItems: 1 }) }
      : {}),
  };
  return open(
    {
      ...peers,
      [`${word}Requires`]: list(looseSelector('Further requirement.'), 'Removed from the language; refused.'),
      toPorts: list(portRule(deny), PORTS),
      icmps: list(icmpRule, 'ICMP types. Not together with toPorts.'),
      ...(deny
        ? {}
        : {
            authentication: open(
              {
                mode: text('disabled, required or test-always-fail.', {
                  enum: ['disabled', 'required', 'test-always-fail'],
                }),
              },
              'Mutual authentication.',
              { required: ['mode'] },
            ),
          }),
    },
    undefined,
    alone ? elementRules(Object.keys(peers)) : {},
  );
}

const LISTS = ['ingress', 'ingressDeny', 'egress', 'egressDeny'];

const SUBJECT: Readonly<Record<RuleKind, readonly [rule: string, message: string]>> = {
  CiliumNetworkPolicy: [
    'has(self.endpointSelector) && !has(self.nodeSelector)',
    'write endpointSelector, {} for every pod of the namespace; nodeSelector is for a CiliumClusterwideNetworkPolicy',
  ],
  CiliumClusterwideNetworkPolicy: [
    'has(self.endpointSelector) != has(self.nodeSelector)',
    'write endpointSelector ({}: every pod), or nodeSelector, and not both',
  ],
};

/**
 * One rule: `spec`, or an item of `specs`.
 * @param alone it is `spec`
 */
export const ruleSchema = (kind: RuleKind, alone: boolean): Schema => {
  const elements = (direction: 'ingress' | 'egress', deny: boolean, description: string): Schema =>
    list(element(direction, deny, alone), description, { maxItems: MOST_ENTRIES });
  return open(
    {
      endpointSelector: selector('Pods that this rule is for. {} selects every pod in scope.'),
      nodeSelector: looseSelector('Nodes that this rule is for (cluster-wide policies only).'),
      ingress: elements('ingress', false, 'What may come in.'),
      ingressDeny: elements('ingress', true, 'What may not come in, whatever allows it.'),
      egress: elements('egress', false, 'What may go out.'),
      egressDeny: elements('egress', true, 'What may not go out, whatever allows it.'),
      enableDefaultDeny: open(
        {
          ingress: flag('Whether selected pods refuse incoming traffic that nothing allows.'),
          egress: flag('Whether selected pods refuse outgoing traffic that nothing allows.'),
        },
        'Default deny by direction; unset: on where the rule has any element.',
      ),
      labels: list(
        open({ key: text(undefined, { minLength: 1 }), value: text(), source: text() }, undefined, {
          required: ['key'],
        }),
        'Labels of the rule itself, for identification.',
      ),
      description: text('Free text.'),
      log: open(
        { value: text('At most 32 printable characters.', { pattern: PRINTABLE, maxLength: 32 }) },
        'Text shown with flows that this rule decides.',
      ),
    },
    'One rule.',
    rules(SUBJECT[kind], [
      LISTS.map((field) => `(${filled(field)})`).join(' || '),
      'write at least one element under ingress, ingressDeny, egress or egressDeny, and see that the name is spelt so (to deny all: ingress: [{}])',
    ]),
  );
};

/** `specs`. */
export const rulesSchema = (kind: RuleKind): Schema =>
  list(ruleSchema(kind, false), 'Several rules; together with spec they make the policy.', { maxItems: MOST_ENTRIES });
