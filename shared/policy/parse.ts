/**
 * JSON -> Rule. Never throws on JSON: every problem is reported with its path. One `InvalidSpec` empties the result; of an
 * element with an `UnsupportedField`, an allow selects nothing and a deny is taken at its widest.
 */

import type { RuleScope } from './context.ts';
import { parseRule } from './parse-rule.ts';
import { checkFields, isObject, member, Problems, show } from './problems.ts';
import type { ParseResult, PolicyKind, Rule } from './types.ts';

const OBJECT_FIELDS = ['apiVersion', 'kind', 'metadata', 'spec', 'specs', 'status'];

/**
 * Parses a CiliumNetworkPolicy or CiliumClusterwideNetworkPolicy, the whole Kubernetes object. `spec` and `specs` may both be
 * set; the policy is their union. `kind` is what it must be; the object's own `kind` may be absent, as in lists.
 */
export function parsePolicy(object: unknown, kind: Exclude<PolicyKind, 'BareRules'>): ParseResult {
  const problems = new Problems();
  if (!isObject(object)) {
    problems.invalid('$', `${show(object)} is not a policy: write an object with metadata and spec`);
    return { rules: [], problems: problems.list };
  }
  checkFields(object, OBJECT_FIELDS, '', problems);
  checkHeader(object, kind, problems);
  const scope = scopeOfObject(object, kind, problems);

  const rules: Rule[] = [];
  const read = (json: unknown, path: string) => {
    const rule = parseRule(json, path, scope, problems);
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
  return { rules: problems.hasInvalid ? [] : rules, problems: problems.list };
}

/**
 * Parses Cilium's older bare form: a list of rules, each with its `labels`, no Kubernetes object around them. Selectors are
 * taken as written: no namespace is needed and none is added.
 */
export function parseBareRules(json: unknown): ParseResult {
  const problems = new Problems();
  if (!Array.isArray(json)) {
    problems.invalid('$', `${show(json)} is not a list of rules: write [ {endpointSelector: ..., ingress: ...} ]`);
    return { rules: [], problems: problems.list };
  }
  if (json.length === 0) problems.invalid('$', 'the list holds no rule: write at least one');
  const rules: Rule[] = [];
  json.forEach((item: unknown, index) => {
    const rule = parseRule(item, `[${index}]`, { kind: 'BareRules' }, problems);
    if (rule !== undefined) rules.push(rule);
  });
  return { rules: problems.hasInvalid ? [] : rules, problems: problems.list };
}

function checkHeader(object: Readonly<Record<string, unknown>>, kind: PolicyKind, problems: Problems): void {
  const given = member(object, 'kind');
  if (given !== undefined && given !== kind)
    problems.invalid('kind', `${show(given)} is not ${kind}: write kind: ${kind}`);
  const version = member(object, 'apiVersion');
  if (version !== undefined && version !== 'cilium.io/v2') {
    problems.invalid('apiVersion', `${show(version)} is not cilium.io/v2: write apiVersion: cilium.io/v2`);
  }
}

function scopeOfObject(
  object: Readonly<Record<string, unknown>>,
  kind: Exclude<PolicyKind, 'BareRules'>,
  problems: Problems,
): RuleScope {
  const metadata = member(object, 'metadata');
  const fields = isObject(metadata) ? metadata : {};
  const name = member(fields, 'name');
  if (typeof name !== 'string' || name === '')
    problems.invalid('metadata.name', 'the policy has no name: write metadata.name');
  const namespace = member(fields, 'namespace');
  const hasNamespace = namespace !== undefined && namespace !== null && namespace !== '';
  if (kind === 'CiliumClusterwideNetworkPolicy') {
    if (hasNamespace) {
      problems.invalid(
        'metadata.namespace',
        `${show(namespace)}: a ${kind} has no namespace; remove it, or write a CiliumNetworkPolicy`,
      );
    }
    return { kind };
  }
  if (typeof namespace !== 'string' || namespace === '') {
    problems.invalid(
      'metadata.namespace',
      `a ${kind} needs a namespace: write metadata.namespace, or use a clusterwide policy`,
    );
    return { kind, namespace: '' };
  }
  return { kind, namespace };
}
