import { canonicalSelector } from './canonical.ts';
import { type LabelProblem, quote, SelectorError } from './errors.ts';
import { labelValueProblem, parseSelectorKey, type SelectorKeyOptions } from './selector-key.ts';
import type { LabelSelector, Operator, Requirement } from './types.ts';

export type SelectorOptions = SelectorKeyOptions;

/** Problems that are told. */
const MOST = 50;

const OPERATORS: readonly Operator[] = ['In', 'NotIn', 'Exists', 'DoesNotExist'];

/**
 * Reads a Kubernetes label selector `{matchLabels, matchExpressions}` (spec 2.2) into canonical form. `{}` matches everything;
 * null is refused, because it would mean `{}` too. `path` is the selector's JSON path, for messages.
 * @throws SelectorError with the problems found, at most MOST and how many more
 */
export function parseSelector(json: unknown, path: string, options: SelectorOptions = {}): LabelSelector {
  const problems: LabelProblem[] = [];
  let more = 0;
  const requirements: Requirement[] = [];
  const report = (where: string, message: string): void => {
    if (problems.length < MOST) problems.push({ path: where, message });
    else more += 1;
  };

  const key = (text: string, where: string): string | undefined => {
    try {
      return parseSelectorKey(text, options);
    } catch (error) {
      report(where, error instanceof Error ? error.message : String(error));
      return undefined;
    }
  };
  const value = (text: unknown, where: string): string | undefined => {
    if (typeof text !== 'string') {
      report(where, `${quote(text)} is not a text: put the label value in quotes`);
      return undefined;
    }
    const problem = labelValueProblem(text);
    if (problem !== undefined) {
      report(where, `${quote(text)} ${problem}`);
      return undefined;
    }
    return text;
  };

  if (!isObject(json)) {
    report(path, `${quote(json)} is not a label selector: write {matchLabels: ...}, or {} to match everything`);
    throw new SelectorError(problems);
  }
  for (const field of Object.keys(json)) {
    if (field !== 'matchLabels' && field !== 'matchExpressions') {
      report(
        `${path}.${pathKey(field)}`,
        `unknown field ${quote(field)}: a selector has matchLabels and matchExpressions; put labels under matchLabels`,
      );
    }
  }

  const matchLabels = json.matchLabels;
  if (isObject(matchLabels)) {
    for (const [name, wanted] of Object.entries(matchLabels)) {
      const where = `${path}.matchLabels[${quote(name)}]`;
      const parsedKey = key(name, where);
      const parsedValue = value(wanted, where);
      if (parsedKey !== undefined && parsedValue !== undefined) {
        requirements.push({ key: parsedKey, operator: 'In', values: [parsedValue] });
      }
    }
  } else if (matchLabels !== undefined && matchLabels !== null) {
    report(`${path}.matchLabels`, `${quote(matchLabels)} is not a map of labels: write key: value pairs`);
  }

  const expressions = json.matchExpressions;
  if (Array.isArray(expressions)) {
    expressions.forEach((expression: unknown, index) => {
      const requirement = parseExpression(expression, `${path}.matchExpressions[${index}]`);
      if (requirement !== undefined) requirements.push(requirement);
    });
  } else if (expressions !== undefined && expressions !== null) {
    report(`${path}.matchExpressions`, `${quote(expressions)} is not a list of {key, operator, values}`);
  }

  function parseExpression(expression: unknown, where: string): Requirement | undefined {
    if (!isObject(expression)) {
      report(where, `${quote(expression)} is not an expression: write {key, operator, values}`);
      return undefined;
    }
    for (const field of Object.keys(expression)) {
      if (!['key', 'operator', 'values'].includes(field)) {
        report(`${where}.${pathKey(field)}`, `unknown field ${quote(field)}: an expression has key, operator, values`);
      }
    }
    const name = expression.key;
    let parsedKey: string | undefined;
    if (typeof name === 'string') parsedKey = key(name, `${where}.key`);
    else report(`${where}.key`, `${quote(name)} is not a label key: write one such as app`);

    const operator = OPERATORS.find((known) => known === expression.operator);
    if (operator === undefined) {
      report(`${where}.operator`, `${quote(expression.operator)} is no operator: write one of ${OPERATORS.join(', ')}`);
    }
    const given = expression.values ?? [];
    if (!Array.isArray(given)) {
      report(`${where}.values`, `${quote(given)} is not a list of texts`);
      return undefined;
    }
    const values = given.map((text: unknown, index) => value(text, `${where}.values[${index}]`));
    if ((operator === 'In' || operator === 'NotIn') && given.length === 0) {
      report(`${where}.values`, `${operator} needs at least one value: add values, or use Exists or DoesNotExist`);
      return undefined;
    }
    if ((operator === 'Exists' || operator === 'DoesNotExist') && given.length > 0) {
      report(`${where}.values`, `${operator} takes no values: remove them, or use In or NotIn`);
      return undefined;
    }
    if (parsedKey === undefined || operator === undefined || values.includes(undefined)) return undefined;
    return { key: parsedKey, operator, values: values.filter((text) => text !== undefined) };
  }

  if (more > 0) problems.push({ path, message: `${more} more problems are not shown` });
  if (problems.length > 0) throw new SelectorError(problems);
  return canonicalSelector({ requirements });
}

function isObject(json: unknown): json is Record<string, unknown> {
  return typeof json === 'object' && json !== null && !Array.isArray(json);
}

function pathKey(field: string): string {
  return /^[A-Za-z_][A-Za-z0-9_-]*$/.test(field) ? field : quote(field);
}
