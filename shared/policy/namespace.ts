/** What a policy's scope adds to selectors: subjects (spec 2.3) and peers (spec 2.4). */
import {
  CLUSTER_KEY,
  canonicalSelector,
  type LabelSelector,
  NAMESPACE_KEY,
  NAMESPACE_LABEL_PREFIX,
  type Requirement,
} from '@weir/labels';
import { consequence, type ElementContext, isOfPods, type RuleScope } from './context.ts';
import { type Problems, show } from './problems.ts';
import type { Entity, RulePeer } from './types.ts';

const POD_NAMESPACE = `k8s:${NAMESPACE_KEY}`;
const POD_CLUSTER = `k8s:${CLUSTER_KEY}`;
const NAMESPACE_KEYS = [POD_NAMESPACE, `any:${NAMESPACE_KEY}`];
const NAMESPACE_LABEL_KEYS = [`k8s:${NAMESPACE_LABEL_PREFIX}`, `any:${NAMESPACE_LABEL_PREFIX}`];

/** Reserved labels that a single requirement may name: each is the entity of that name. */
const RESERVED_ENTITIES: readonly Entity[] = [
  'host',
  'world',
  'world-ipv4',
  'world-ipv6',
  'remote-node',
  'kube-apiserver',
  'ingress',
  'health',
  'init',
  'unmanaged',
];

/** The subject of a rule. In a CNP the policy's namespace is required; a selector that contradicts it is reported. */
export function subjectSelector(
  selector: LabelSelector,
  path: string,
  scope: RuleScope,
  problems: Problems,
): LabelSelector | undefined {
  warnOfSources(
    selector.requirements.filter((requirement) => !mayBeReserved(requirement, scope)),
    path,
    problems,
  );
  if (scope.kind !== 'CiliumNetworkPolicy') return selector;
  const contradicting = selector.requirements.find(
    (requirement) => NAMESPACE_KEYS.includes(requirement.key) && !admits(requirement, scope.namespace),
  );
  if (contradicting !== undefined) {
    problems.invalid(
      path,
      `the selector's namespace (${contradicting.operator} ${contradicting.values.join(', ')}) contradicts the policy's own, ${show(scope.namespace)}: remove ${contradicting.key}, a CiliumNetworkPolicy selects pods of its namespace only`,
    );
    return undefined;
  }
  warnOfOtherNamespaces(selector, scope.namespace, path, problems);
  return withRequirement(selector, { key: POD_NAMESPACE, operator: 'In', values: [scope.namespace] });
}

/** Whether a requirement of the subject is of a reserved label, and right: excluded, or of pods that are not known yet, which have no namespace. */
function mayBeReserved(requirement: Requirement, scope: RuleScope): boolean {
  if (!requirement.key.startsWith('reserved:')) return false;
  return !isPositive(requirement) || (requirement.key === 'reserved:init' && scope.kind !== 'CiliumNetworkPolicy');
}

/** Warns of keys of which no pod has a label, as their source is another than that of pods' labels. */
function warnOfSources(requirements: readonly Requirement[], path: string, problems: Problems): void {
  for (const { key } of requirements) {
    if (isOfPods(key)) continue;
    problems.warn(
      path,
      `pods have labels of source k8s only: what asks for ${show(key)} selects none of them, what excludes it excludes none; name a label of theirs`,
    );
  }
}

function warnOfOtherNamespaces({ requirements }: LabelSelector, own: string, path: string, problems: Problems): void {
  for (const { key, operator, values } of requirements) {
    if (!NAMESPACE_KEYS.includes(key) || operator !== 'In' || values.length === 1) continue;
    problems.warn(
      path,
      `a CiliumNetworkPolicy selects pods of its own namespace only, and none of ${show(values.filter((value) => value !== own))}: write a policy in each, or a CiliumClusterwideNetworkPolicy`,
    );
  }
}

function admits({ operator, values }: Requirement, namespace: string): boolean {
  if (operator === 'In') return values.includes(namespace);
  if (operator === 'NotIn') return !values.includes(namespace);
  return operator === 'Exists';
}

/** A selector of fromEndpoints or toEndpoints as a peer. `unsupported` and undefined are reported. */
export function peerSelector(
  selector: LabelSelector,
  path: string,
  context: ElementContext,
  problems: Problems,
): RulePeer | 'unsupported' | undefined {
  const { requirements } = selector;
  if (requirements.some(({ key }) => key.startsWith('reserved:')))
    return reservedPeer(selector, path, context, problems);
  const foreign = requirements.find(({ key }) => /^(cidr|cidrgroup|fqdn|node):/.test(key));
  if (foreign !== undefined) {
    problems.unsupported(
      path,
      `the key ${show(foreign.key)} selects no pods, and Weir does not resolve such labels: use the CIDR, FQDN or node members; ${consequence(context.verdict)}`,
    );
    return 'unsupported';
  }
  if (context.scope.kind === 'BareRules') return barePeer(selector, path, context, problems);

  const namespaced = requirements.filter(({ key }) => isNamespaceKey(key));
  const byNamespace = requirements.some(({ key }) => NAMESPACE_KEYS.includes(key));
  if (context.scope.kind === 'CiliumNetworkPolicy' && namespaced.length === 0) {
    return endpoints(
      withRequirement(selector, { key: POD_NAMESPACE, operator: 'In', values: [context.scope.namespace] }),
    );
  }
  // A namespace that is only excluded must not let in what has no namespace at all: the world, hosts, nodes.
  const bound =
    context.scope.kind === 'CiliumNetworkPolicy'
      ? namespaced.some(isPositive)
      : byNamespace && namespaced.some(isPositive);
  if (bound) return endpoints(selector);
  // Beside pods that are not known yet it may be those without a namespace, too (spec 2.4, rule 4).
  const isInit = context.scope.kind === 'CiliumClusterwideNetworkPolicy' && context.scope.init === true;
  const key = isInit && !byNamespace ? POD_CLUSTER : POD_NAMESPACE;
  return endpoints(withRequirement(selector, { key, operator: 'Exists', values: [] }));
}

function isNamespaceKey(key: string): boolean {
  return NAMESPACE_KEYS.includes(key) || NAMESPACE_LABEL_KEYS.some((prefix) => key.startsWith(prefix));
}

export function isPositive({ operator }: Requirement): boolean {
  return operator === 'In' || operator === 'Exists';
}

/** Labels of source `reserved` (spec 2.4, rule 1): what one positive requirement selects is an entity. */
function reservedPeer(
  selector: LabelSelector,
  path: string,
  context: ElementContext,
  problems: Problems,
): RulePeer | 'unsupported' | undefined {
  const positive = selector.requirements.filter(
    (requirement) => requirement.key.startsWith('reserved:') && isPositive(requirement),
  );
  const [first] = positive;
  if (first === undefined) {
    problems.invalid(
      path,
      'a reserved label is only excluded: the selector would take in the world and every node; require one, or use entities',
    );
    return undefined;
  }
  const name = first.key.slice('reserved:'.length);
  const entity = RESERVED_ENTITIES.find((known) => known === name);
  if (selector.requirements.length > 1 || entity === undefined) {
    problems.unsupported(
      path,
      `Weir reads ${selector.requirements.length > 1 ? 'reserved labels alone, not combined' : `no label ${show(first.key)}`}: use entities; ${consequence(context.verdict)}`,
    );
    return 'unsupported';
  }
  const holds = first.operator === 'Exists' || first.values.includes('');
  return entityPeer(holds ? entity : 'none', path, context, problems);
}

/** The entity, or what stands for it where nobody of the cluster has its label. */
export function entityPeer(
  entity: Entity,
  path: string,
  { verdict, known }: ElementContext,
  problems: Problems,
): RulePeer {
  const refusal = known.stack.refusal(entity);
  if (refusal === undefined) return { kind: 'entity', entity };
  const instead = verdict === 'deny' ? 'until then it denies the world' : consequence(verdict);
  problems.bounded(path, `${refusal}; ${instead}`);
  return { kind: 'entity', entity: verdict === 'deny' ? 'world' : 'none' };
}

/** Bare rules get nothing added: `{}` is everything, and a purely negative selector would take in the world. */
function barePeer(
  selector: LabelSelector,
  path: string,
  context: ElementContext,
  problems: Problems,
): RulePeer | 'unsupported' {
  if (selector.requirements.length === 0) return { kind: 'entity', entity: 'all' };
  if (!selector.requirements.some(isPositive)) {
    problems.unsupported(
      path,
      `a selector that only excludes takes in the world and every node, which Weir does not resolve: require one label; ${consequence(context.verdict)}`,
    );
    return 'unsupported';
  }
  return endpoints(selector);
}

function endpoints(selector: LabelSelector): RulePeer {
  return { kind: 'endpoints', selector };
}

function withRequirement(selector: LabelSelector, requirement: Requirement): LabelSelector {
  return canonicalSelector({ requirements: [...selector.requirements, requirement] });
}
