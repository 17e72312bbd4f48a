import { compareText, type LabelSelector, parseLabel } from '@weir/labels';
import { type Known, type RuleScope, readSelector, warnOfUnseenLabels } from './context.ts';
import { subjectSelector } from './namespace.ts';
import { parseElement } from './parse-element.ts';
import {
  checkFields,
  childPath,
  isObject,
  type Json,
  listOf,
  member,
  type Problems,
  show,
  textOf,
} from './problems.ts';
import type { Direction, Rule, RuleElement, Verdict } from './types.ts';

/** And `nodeSelector`, of cluster-wide policies. */
const RULE_FIELDS = [
  'endpointSelector',
  'ingress',
  'ingressDeny',
  'egress',
  'egressDeny',
  'enableDefaultDeny',
  'labels',
  'description',
  'log',
];

/** The four lists of a rule (spec 1.2). */
export const ELEMENT_LISTS: readonly {
  readonly field: string;
  readonly direction: Direction;
  readonly verdict: Verdict;
}[] = [
  { field: 'ingress', direction: 'ingress', verdict: 'allow' },
  { field: 'ingressDeny', direction: 'ingress', verdict: 'deny' },
  { field: 'egress', direction: 'egress', verdict: 'allow' },
  { field: 'egressDeny', direction: 'egress', verdict: 'deny' },
];

/** Parses one rule. Undefined when there is nothing to enforce: it is not readable, or it selects nodes (host firewall off). */
export function parseRule(
  json: unknown,
  path: string,
  scope: RuleScope,
  known: Known,
  problems: Problems,
): Rule | undefined {
  if (!isObject(json)) {
    problems.invalid(path, `${show(json)} is not a rule: write an object with endpointSelector and ingress or egress`);
    return undefined;
  }
  if (scope.kind === 'CiliumNetworkPolicy') checkFields(json, RULE_FIELDS, path, problems, ['nodeSelector']);
  else checkFields(json, [...RULE_FIELDS, 'nodeSelector'], path, problems);
  const subject = parseSubject(json, path, scope, problems);

  const elements: RuleElement[] = [];
  let count = 0;
  for (const { field, direction, verdict } of ELEMENT_LISTS) {
    const items = listOf(json, field, path, problems) ?? [];
    count += items.length;
    items.forEach((item, index) => {
      const element = parseElement(
        item,
        { path: `${path}.${field}[${index}]`, direction, verdict, scope, known },
        problems,
      );
      if (element !== undefined) elements.push(element);
    });
  }
  if (count === 0) {
    problems.invalid(
      path,
      'ingress, ingressDeny, egress and egressDeny are all empty: write at least one element (to deny all, write ingress: [{}])',
    );
  }

  const has = {
    ingress: elements.some((element) => element.direction === 'ingress'),
    egress: elements.some((element) => element.direction === 'egress'),
  };
  const asked = parseDefaultDeny(json, path, problems);
  const labels = parseRuleLabels(json, path, scope, problems);
  const log = parseLog(json, path, problems);
  textOf(json, 'description', path, problems);
  if (subject === undefined) return undefined;
  return {
    subject,
    elements,
    defaultDeny: { ingress: has.ingress && asked.ingress !== false, egress: has.egress && asked.egress !== false },
    has,
    labels,
    path,
    ...(log === undefined ? {} : { log }),
  };
}

function parseSubject(json: Json, path: string, scope: RuleScope, problems: Problems): LabelSelector | undefined {
  const hasEndpoint = member(json, 'endpointSelector') !== undefined;
  const hasNode = member(json, 'nodeSelector') !== undefined;
  if (hasEndpoint && hasNode) {
    problems.invalid(`${path}.nodeSelector`, 'the rule has both endpointSelector and nodeSelector: keep one');
  }
  if (!hasEndpoint && !hasNode) {
    problems.invalid(
      `${path}.endpointSelector`,
      'the rule selects nothing: write endpointSelector ({} selects every pod in scope)',
    );
  }
  if (hasNode) {
    const nodePath = `${path}.nodeSelector`;
    if (scope.kind === 'CiliumNetworkPolicy') {
      problems.invalid(
        nodePath,
        'nodeSelector is allowed in a CiliumClusterwideNetworkPolicy only: use endpointSelector',
      );
    } else if (member(json, 'nodeSelector') === null) {
      problems.invalid(nodePath, 'null would select every node: write {} if that is meant');
    } else {
      problems.unsupported(
        nodePath,
        'rules for nodes are not enforced: the host firewall is off, so this rule has no effect',
      );
    }
  }
  if (!hasEndpoint) return undefined;
  const where = `${path}.endpointSelector`;
  const written = member(json, 'endpointSelector');
  if (written === null) {
    problems.invalid(where, 'null would select every pod in scope: write {} if that is meant');
    return undefined;
  }
  const selector = readSelector(written, where, problems);
  if (selector === undefined || hasNode) return undefined;
  warnOfUnseenLabels(selector, where, problems);
  return subjectSelector(selector, where, scope, problems);
}

function parseDefaultDeny(json: Json, path: string, problems: Problems): Partial<Record<Direction, boolean>> {
  const value = member(json, 'enableDefaultDeny');
  if (value === undefined || value === null) return {};
  const where = `${path}.enableDefaultDeny`;
  if (!isObject(value)) {
    problems.invalid(where, `${show(value)} is not {ingress: true or false, egress: true or false}`);
    return {};
  }
  checkFields(value, ['ingress', 'egress'], where, problems);
  const result: Partial<Record<Direction, boolean>> = {};
  for (const direction of ['ingress', 'egress'] as const) {
    const flag = member(value, direction);
    if (typeof flag === 'boolean') result[direction] = flag;
    else if (flag !== undefined && flag !== null) {
      problems.invalid(
        `${where}.${direction}`,
        `${show(flag)} is neither true nor false: write one of them without quotes`,
      );
    }
  }
  return result;
}

function parseRuleLabels(json: Json, path: string, scope: RuleScope, problems: Problems): readonly string[] {
  const labels = new Set<string>();
  (listOf(json, 'labels', path, problems) ?? []).forEach((item, index) => {
    const where = `${path}.labels[${index}]`;
    if (typeof item === 'string' && scope.kind === 'BareRules') {
      try {
        const { source, key, value } = parseLabel(item);
        labels.add(`${source}:${key}=${value}`);
      } catch (error) {
        problems.invalid(where, error instanceof Error ? error.message : String(error));
      }
      return;
    }
    if (!isObject(item)) {
      problems.invalid(where, `${show(item)} is not a label: write {key, value, source}`);
      return;
    }
    checkFields(item, ['key', 'value', 'source'], where, problems);
    const key = textOf(item, 'key', where, problems);
    const value = textOf(item, 'value', where, problems) ?? '';
    const source = textOf(item, 'source', where, problems) || 'unspec';
    if (!key) problems.invalid(`${where}.key`, 'the label has no key: write one');
    else labels.add(`${source}:${key}=${value}`);
  });
  return [...labels].sort(compareText);
}

function parseLog(json: Json, path: string, problems: Problems): string | undefined {
  const value = member(json, 'log');
  if (value === undefined || value === null) return undefined;
  const where = childPath(path, 'log');
  if (!isObject(value)) {
    problems.invalid(where, `${show(value)} is not {value: text}`);
    return undefined;
  }
  checkFields(value, ['value'], where, problems);
  const text = textOf(value, 'value', where, problems);
  if (text === undefined || text === '') return undefined;
  if (!/^[\x20-\x7e]{1,32}$/.test(text)) {
    problems.invalid(`${where}.value`, `${show(text)} does not fit: at most 32 printable ASCII characters`);
    return undefined;
  }
  return text;
}
