/**
 * JSON -> Rule. Never throws on JSON: every problem is reported with its path. One `InvalidSpec` empties the result; of an
 * element with an `UnsupportedField`, an allow selects nothing and a deny is taken at its widest.
 */

import { DEEPEST, depthIn } from '@weir/process/depth';
import type { Known, RuleScope } from './context.ts';
import { parseNetworkPolicySpec } from './parse-network-policy.ts';
import { parseRule } from './parse-rule.ts';
import { checkFields, childPath, isObject, type Json, member, Problems, show } from './problems.ts';
import { NO_SERVICES, ServiceReader } from './services.ts';
import type { ParseResult, PolicyKind, Rule, ServiceView } from './types.ts';

const OBJECT_FIELDS = ['apiVersion', 'kind', 'metadata', 'spec', 'specs', 'status'];

/**
 * Parses a CiliumNetworkPolicy, CiliumClusterwideNetworkPolicy or NetworkPolicy, the whole Kubernetes object. `spec` and `specs`
 * (not in a NetworkPolicy) may both be set; the policy is their union. `kind` is what it must be; the object's own `kind` may be
 * absent, as in lists. The annotation `policy.cilium.io/name` is not looked at: a policy goes by the name of its object.
 * @param services those that `toServices` may mean. Default: none
 */
export function parsePolicy(
  object: unknown,
  kind: Exclude<PolicyKind, 'BareRules'>,
  services: ServiceView = NO_SERVICES,
): ParseResult {
  const problems = new Problems();
  const nothing = (): ParseResult => ({ rules: [], problems: problems.list, services: [] });
  if (isTooDeep(object, problems)) return nothing();
  if (!isObject(object)) {
    problems.invalid('$', `${show(object)} is not a policy: write an object with metadata and spec`);
    return nothing();
  }
  if (kind === 'NetworkPolicy') return parseNetworkPolicy(object, problems);
  checkFields(object, OBJECT_FIELDS, '', problems);
  checkHeader(object, kind, problems);
  const scope = scopeOfObject(object, kind, problems);

  const rules: Rule[] = [];
  const known = knownOf(services);
  const read = (json: unknown, path: string) => {
    const rule = parseRule(json, path, scope, known, problems);
    if (rule !== undefined) rules.push(rule);
  };
  const spec = member(object, 'spec');
  const specs = member(object, 'specs');
  const hasSpec = spec !== undefined && spec !== null;
  if (hasSpec) read(spec, 'spec');
  if (Array.isArray(specs)) {
    if (specs.length === 0 && !hasSpec)
      problems.invalid('specs', 'the list is empty and there is no spec: write at least one rule');
    specs.forEach((json: unknown, index) => {
      read(json, `specs[${index}]`);
    });
  } else if (specs !== undefined && specs !== null) {
    problems.invalid('specs', `${show(specs)} is not a list of rules: write a list, or one rule under spec`);
  } else if (!hasSpec) {
    problems.invalid('spec', 'the policy has neither spec nor specs: write a rule under spec');
  }
  return { rules: problems.hasInvalid ? [] : rules, problems: problems.list, services: known.services.refs };
}

function knownOf(services: ServiceView): Known & { readonly services: ServiceReader } {
  return { peers: new Map(), services: new ServiceReader(services) };
}

function parseNetworkPolicy(object: Json, problems: Problems): ParseResult {
  const kind = 'NetworkPolicy';
  checkFields(
    object,
    OBJECT_FIELDS.filter((field) => field !== 'specs'),
    '',
    problems,
  );
  checkHeader(object, kind, problems);
  const namespace = namespaceOf(object, kind, problems);
  const rule = parseNetworkPolicySpec(member(object, 'spec'), 'spec', namespace, problems);
  return { rules: problems.hasInvalid || rule === undefined ? [] : [rule], problems: problems.list, services: [] };
}

/**
 * Parses Cilium's older bare form: a list of rules, each with its `labels`, no Kubernetes object around them. Selectors are
 * taken as written: no namespace is needed and none is added.
 */
export function parseBareRules(json: unknown): ParseResult {
  const problems = new Problems();
  if (isTooDeep(json, problems)) return { rules: [], problems: problems.list, services: [] };
  if (!Array.isArray(json)) {
    problems.invalid('$', `${show(json)} is not a list of rules: write [ {endpointSelector: ..., ingress: ...} ]`);
    return { rules: [], problems: problems.list, services: [] };
  }
  if (json.length === 0) problems.invalid('$', 'the list holds no rule: write at least one');
  const rules: Rule[] = [];
  const known = knownOf(NO_SERVICES);
  json.forEach((item: unknown, index) => {
    const rule = parseRule(item, `[${index}]`, { kind: 'BareRules' }, known, problems);
    if (rule !== undefined) rules.push(rule);
  });
  return { rules: problems.hasInvalid ? [] : rules, problems: problems.list, services: [] };
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
