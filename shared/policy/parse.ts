/**
 * JSON -> Rule. Never throws on JSON: every problem is reported with its path. What cannot be read of a rule, or is not supported, allows nothing and
 * denies all that it may mean; the rest of the policy stands, default deny included. Only where it cannot be read whom a rule is about, or which
 * object this is, the result is empty (`refused`).
 */

import { DEEPEST, depthIn } from '@weir/process/depth';
import { CidrGroupReader, NO_CIDR_GROUPS } from './cidr-groups.ts';
import type { Known, RuleScope } from './context.ts';
import { parseNetworkPolicySpec } from './parse-network-policy.ts';
import { parseRule } from './parse-rule.ts';
import { checkFields, childPath, isObject, type Json, member, Problems, show } from './problems.ts';
import { NO_SERVICES, ServiceReader } from './services.ts';
import { StackWords } from './stack.ts';
import type { ParseResult, PolicyKind, Referents, Rule } from './types.ts';

const OBJECT_FIELDS = ['apiVersion', 'kind', 'metadata', 'spec', 'specs', 'status'];

/**
 * Parses a CiliumNetworkPolicy, CiliumClusterwideNetworkPolicy or NetworkPolicy, the whole Kubernetes object. `spec` and `specs`
 * (not in a NetworkPolicy) may both be set; the policy is their union. `kind` is what it must be; the object's own `kind` may be
 * absent, as in lists. The annotation `policy.cilium.io/name` is not looked at: a policy goes by the name of its object.
 * @param referents what it may refer to. Default: there is nothing, and nobody knows which families of addresses there are
 */
export function parsePolicy(
  object: unknown,
  kind: Exclude<PolicyKind, 'BareRules'>,
  referents: Partial<Referents> = {},
): ParseResult {
  const problems = new Problems();
  if (!isReadable(object, problems)) return { ...resultOf([], problems), refused: true };
  if (kind === 'NetworkPolicy') return parseNetworkPolicy(object, problems);
  checkFields(object, OBJECT_FIELDS, '', problems);
  const scope = problems.essential(() => {
    checkHeader(object, kind, problems);
    return scopeOfObject(object, kind, problems);
  });

  const rules: Rule[] = [];
  const known = knownOf(referents);
  const read = (json: unknown, path: string) => {
    const rule = parseRule(json, path, scope, known, problems);
    if (rule !== undefined) rules.push(rule);
  };
  const spec = member(object, 'spec');
  const specs = member(object, 'specs');
  const hasSpec = spec !== undefined && spec !== null;
  if (hasSpec) read(spec, 'spec');
  problems.essential(() => checkSpecs(specs, hasSpec, problems));
  if (Array.isArray(specs)) {
    specs.forEach((json: unknown, index) => {
      read(json, `specs[${index}]`);
    });
  }
  return resultOf(rules, problems, known);
}

function checkSpecs(specs: unknown, hasSpec: boolean, problems: Problems): void {
  if (Array.isArray(specs)) {
    if (specs.length === 0 && !hasSpec)
      problems.invalid('specs', 'the list is empty and there is no spec: write at least one rule');
  } else if (specs !== undefined && specs !== null) {
    problems.invalid('specs', `${show(specs)} is not a list of rules: write a list, or one rule under spec`);
  } else if (!hasSpec) {
    problems.invalid('spec', 'the policy has neither spec nor specs: write a rule under spec');
  }
}

function resultOf(rules: readonly Rule[], problems: Problems, known?: References): ParseResult {
  const { refused } = problems;
  const references = {
    services: known?.services.refs ?? [],
    cidrGroups: known?.cidrGroups.refs ?? [],
    byStack: known?.stack.used ?? false,
  };
  return { rules: refused ? [] : rules, refused, problems: problems.list, ...references };
}

interface References extends Known {
  readonly services: ServiceReader;
  readonly cidrGroups: CidrGroupReader;
}

function knownOf({
  services = NO_SERVICES,
  cidrGroups = NO_CIDR_GROUPS,
  stack = 'unknown',
}: Partial<Referents>): References {
  return {
    peers: new Map(),
    services: new ServiceReader(services),
    cidrGroups: new CidrGroupReader(cidrGroups),
    stack: new StackWords(stack),
  };
}

function parseNetworkPolicy(object: Json, problems: Problems): ParseResult {
  const kind = 'NetworkPolicy';
  checkFields(
    object,
    OBJECT_FIELDS.filter((field) => field !== 'specs'),
    '',
    problems,
  );
  const namespace = problems.essential(() => {
    checkHeader(object, kind, problems);
    return namespaceOf(object, kind, problems);
  });
  const rule = parseNetworkPolicySpec(member(object, 'spec'), 'spec', namespace, problems);
  return resultOf(rule === undefined ? [] : [rule], problems);
}

/**
 * Parses Cilium's older bare form: a list of rules, each with its `labels`, no Kubernetes object around them. Selectors are
 * taken as written: no namespace is needed and none is added, and world-ipv4 is the world of IPv4 whatever families the cluster has.
 */
export function parseBareRules(json: unknown): ParseResult {
  const problems = new Problems();
  const list = problems.essential(() => {
    if (isTooDeep(json, problems)) return [];
    if (!Array.isArray(json))
      problems.invalid('$', `${show(json)} is not a list of rules: write [ {endpointSelector: ..., ingress: ...} ]`);
    else if (json.length === 0) problems.invalid('$', 'the list holds no rule: write at least one');
    return Array.isArray(json) ? json : [];
  });
  const rules: Rule[] = [];
  const known = knownOf({ stack: 'dual' });
  list.forEach((item: unknown, index) => {
    const rule = parseRule(item, `[${index}]`, { kind: 'BareRules' }, known, problems);
    if (rule !== undefined) rules.push(rule);
  });
  return resultOf(rules, problems);
}

function isReadable(object: unknown, problems: Problems): object is Json {
  if (isTooDeep(object, problems)) return false;
  if (isObject(object)) return true;
  problems.invalid('$', `${show(object)} is not a policy: write an object with metadata and spec`);
  return false;
}

/** Nothing of it is looked at then: to print or compare it may take more than the stack. */
function isTooDeep(json: unknown, problems: Problems): boolean {
  const keys = depthIn(json);
  if (keys === undefined) return false;
  problems.invalid(keys.reduce(childPath, ''), `nested deeper than ${DEEPEST} levels: no field of a policy is`);
  return true;
}

function checkHeader(object: Json, kind: PolicyKind, problems: Problems): void {
  const given = member(object, 'kind');
  if (given !== undefined && given !== kind)
    problems.invalid('kind', `${show(given)} is not ${kind}: write kind: ${kind}`);
  const wanted = kind === 'NetworkPolicy' ? 'networking.k8s.io/v1' : 'cilium.io/v2';
  const version = member(object, 'apiVersion');
  if (version !== undefined && version !== wanted) {
    problems.invalid('apiVersion', `${show(version)} is not ${wanted}: write apiVersion: ${wanted}`);
  }
  if (!textMember(metadataOf(object), 'name')) {
    problems.invalid('metadata.name', 'the policy has no name: write metadata.name');
  }
}

function scopeOfObject(
  object: Json,
  kind: 'CiliumNetworkPolicy' | 'CiliumClusterwideNetworkPolicy',
  problems: Problems,
): RuleScope {
  if (kind === 'CiliumNetworkPolicy') return { kind, namespace: namespaceOf(object, kind, problems) };
  const namespace = member(metadataOf(object), 'namespace');
  if (namespace !== undefined && namespace !== null && namespace !== '') {
    problems.invalid(
      'metadata.namespace',
      `${show(namespace)}: a ${kind} has no namespace; remove it, or write a CiliumNetworkPolicy`,
    );
  }
  return { kind };
}

/** Empty when it is missing, which is reported. */
function namespaceOf(object: Json, kind: PolicyKind, problems: Problems): string {
  const namespace = textMember(metadataOf(object), 'namespace');
  if (!namespace) {
    problems.invalid(
      'metadata.namespace',
      `a ${kind} needs a namespace: write metadata.namespace, or use a clusterwide policy`,
    );
  }
  return namespace;
}

function metadataOf(object: Json): Json {
  const metadata = member(object, 'metadata');
  return isObject(metadata) ? metadata : {};
}

function textMember(object: Json, field: string): string {
  const value = member(object, field);
  return typeof value === 'string' ? value : '';
}
