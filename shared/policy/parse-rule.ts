import { compareText, type LabelSelector, parseLabel } from '@weir/labels';
import { type Known, type RuleScope, readSelector, warnOfUnseenLabels } from './context.ts';
import { isPositive, subjectSelector } from './namespace.ts';
import { parseElement, refusedElement } from './parse-element.ts';
import {
  checkFields,
  childPath,
  isObject,
  type Json,
  listOf,
  member,
  nearest,
  type Problems,
  show,
  textOf,
} from './problems.ts';
import { oddSpelling } from './spellings.ts';
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

/** Fields of one rule that have no known name, of which each is compared with all that have. */
const MOST_UNKNOWN = 100;

/** Parses one rule. Undefined when there is nothing to enforce: it is not readable, or it selects nodes (host firewall off). */
export function parseRule(
  json: unknown,
  path: string,
  scope: RuleScope,
  known: Known,
  problems: Problems,
): Rule | undefined {
  if (!isObject(json)) {
    problems.essential(() => {
      problems.invalid(
        path,
        `${show(json)} is not a rule: write an object with endpointSelector and ingress or egress`,
      );
    });
    return undefined;
  }
  if (scope.kind === 'CiliumNetworkPolicy') checkFields(json, RULE_FIELDS, path, problems, ['nodeSelector']);
  else checkFields(json, [...RULE_FIELDS, 'nodeSelector'], path, problems);
  const subject = problems.essential(() => parseSubject(json, path, scope, known, problems));

  const asksInit = scope.kind === 'CiliumClusterwideNetworkPolicy' && subject !== undefined && isOfInit(subject);
  const peerScope = asksInit ? { ...scope, init: true as const } : scope;
  const elements = [
    ...parseLists(json, path, peerScope, known, problems),
    ...misspelt(json, path, peerScope, known, problems),
  ];
  if (elements.length === 0) {
    problems.essential(() => {
      problems.invalid(
        path,
        'ingress, ingressDeny, egress and egressDeny are all empty: write at least one element (to deny all, write ingress: [{}])',
      );
    });
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

/** Whether it asks for pods that are not known yet. */
function isOfInit({ requirements }: LabelSelector): boolean {
  return requirements.some((each) => each.key === 'reserved:init' && isPositive(each));
}

function parseLists(json: Json, path: string, scope: RuleScope, known: Known, problems: Problems): RuleElement[] {
  const elements: RuleElement[] = [];
  for (const { field, direction, verdict } of ELEMENT_LISTS) {
    const { value: items, lacks } = problems.lacking(() => listOf(json, field, path, problems));
    if (lacks) elements.push(refusedElement({ path: `${path}.${field}`, direction, verdict }));
    for (const [index, item] of (items ?? []).entries()) {
      const context = { path: `${path}.${field}[${index}]`, direction, verdict, scope, known };
      for (const element of parseElement(item, context, problems)) elements.push(element);
    }
  }
  return elements;
}

/** A list of a misspelt name leaves its direction closed, and denies what it may mean. */
function misspelt(json: Json, path: string, scope: RuleScope, known: Known, problems: Problems): RuleElement[] {
  const fields = [...RULE_FIELDS, 'nodeSelector'];
  const unknown = Object.keys(json).filter((field) => !fields.includes(field) && json[field] !== null);
  // Too many to compare: any of the lists may be among them.
  if (unknown.length > MOST_UNKNOWN)
    return ELEMENT_LISTS.map(({ direction, verdict }) => refusedElement({ path, direction, verdict }));
  return unknown.flatMap((field) => {
    const value = json[field];
    const near = nearest(field, fields);
    const list = ELEMENT_LISTS.find((each) => each.field === near);
    if (list === undefined) return [];
    const { direction, verdict } = list;
    const at = childPath(path, field);
    if (verdict === 'allow' || !Array.isArray(value)) return [refusedElement({ path: at, direction, verdict })];
    return value.flatMap((item: unknown, index) =>
      parseElement(item, { path: `${at}[${index}]`, direction, verdict, scope, known }, problems),
    );
  });
}

function parseSubject(
  json: Json,
  path: string,
  scope: RuleScope,
  known: Known,
  problems: Problems,
): LabelSelector | undefined {
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
      readSelector(member(json, 'nodeSelector'), nodePath, problems);
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
  const odd = oddSpelling(written, known.stack);
  if (odd !== undefined) {
    problems.invalid(`${where}${odd.path}`, odd.message);
    return undefined;
  }
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
