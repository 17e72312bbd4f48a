/** What stays of a policy that needs more than it may: whom it is about, in which directions, and whether it denies. */
import { ELEMENT_LISTS } from './parse-rule.ts';
import { isObject, type Json, member } from './problems.ts';
import type { PolicyKind } from './types.ts';

/**
 * The policy with nothing that is allowed: read as it is, it closes the directions that it has elements of, and denies everything in those in which it
 * denies something. Costs what its rules cost, however much they list.
 */
export function closedPolicy(object: unknown, kind: Exclude<PolicyKind, 'BareRules'>): unknown {
  if (!isObject(object)) return object;
  const [spec, specs] = [member(object, 'spec'), member(object, 'specs')];
  if (kind === 'NetworkPolicy') return { ...object, spec: closedNetworkSpec(spec) };
  return {
    ...object,
    ...(spec === undefined ? {} : { spec: closedRule(spec) }),
    ...(Array.isArray(specs) ? { specs: specs.map(closedRule) } : {}),
  };
}

function closedRule(rule: unknown): unknown {
  if (!isObject(rule)) return rule;
  const lists = ELEMENT_LISTS.flatMap(({ field, verdict }) =>
    // No element is an empty one: as an allow it selects nothing, and null cannot be read, which denies everything.
    isEmpty(member(rule, field)) ? [] : [[field, [verdict === 'allow' ? {} : null]] as const],
  );
  return Object.fromEntries([...kept(rule, ['endpointSelector', 'nodeSelector', 'enableDefaultDeny']), ...lists]);
}

function kept(json: Json, fields: readonly string[]): (readonly [string, unknown])[] {
  return fields.flatMap((field) => {
    const value = member(json, field);
    return value === undefined ? [] : [[field, value] as const];
  });
}

function closedNetworkSpec(spec: unknown): unknown {
  if (!isObject(spec)) return spec;
  const types = member(spec, 'policyTypes') ?? ['Ingress', ...(isEmpty(member(spec, 'egress')) ? [] : ['Egress'])];
  return Object.fromEntries([...kept(spec, ['podSelector']), ['policyTypes', types] as const]);
}

function isEmpty(list: unknown): boolean {
  return list === undefined || list === null || (Array.isArray(list) && list.length === 0);
}
