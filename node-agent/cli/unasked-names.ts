/** Names whose addresses nobody can learn: they are known once a pod has asked for them by a DNS rule. */
import type { LabelSelector, Requirement } from '@weir/labels';
import type { Rule } from '@weir/policy';

const TEXT =
  'no rule in these files lets the pods ask DNS (`rules.dns` of a port), so the names have no addresses and nothing is allowed by them; ' +
  "add an egress rule to the cluster's DNS with `toPorts: [{ports: [{port: '53', protocol: ANY}], rules: {dns: [{matchPattern: '*'}]}}]`, unless another policy has one";

/** `asking`: subjects of rules that let their pods ask. */
export function unaskedNames(
  rules: readonly Rule[],
  asking: readonly LabelSelector[],
): readonly { readonly code: 'Warning'; readonly path: string; readonly message: string }[] {
  return rules
    .filter(({ subject }) => !asking.some((other) => canShare(subject, other)))
    .flatMap(({ elements }) => elements.filter(({ peers }) => peers !== 'any' && peers.some(isOfNames)))
    .map(({ path }) => ({ code: 'Warning', path: `${path}.toFQDNs`, message: TEXT }));
}

export function subjectsThatAsk(rules: readonly Rule[]): readonly LabelSelector[] {
  return rules.filter(({ elements }) => elements.some(({ dns }) => dns !== undefined)).map(({ subject }) => subject);
}

function isOfNames({ kind }: { readonly kind: string }): boolean {
  return kind === 'names';
}

/** Whether labels can be thought of that both match. Where it is not plain that there are none it says so. */
function canShare(one: LabelSelector, other: LabelSelector): boolean {
  return one.requirements.every((a) => other.requirements.every((b) => a.key !== b.key || agree(a, b)));
}

function agree(a: Requirement, b: Requirement): boolean {
  if (a.operator !== 'In') return b.operator !== 'In' || agree(b, a);
  if (b.operator === 'In') return a.values.some((value) => b.values.includes(value));
  if (b.operator === 'NotIn') return a.values.some((value) => !b.values.includes(value));
  return b.operator === 'Exists';
}
