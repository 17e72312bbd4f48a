import { canonicalSelector } from './canonical.ts';
import { type LabelProblem, quote, SelectorError } from './errors.ts';
import { labelValueProblem, readSelectorKey, type SelectorKeyOptions } from './selector-key.ts';
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
  const { selector, problems } = readSelector(json, path, options);
  if (selector === undefined) throw new SelectorError(problems);
  return selector;
}

/** The same, without a throw. `selector`: undefined when there are problems. */
export function readSelector(
  json: unknown,
  path: string,
  options: SelectorOptions = {},
): { readonly selector: LabelSelector | undefined; readonly problems: readonly LabelProblem[] } {
  const reader = new SelectorReader(options);
  const requirements = reader.selector(json, path);
  const problems = reader.problems(path);
  return { selector: problems.length > 0 ? undefined : canonicalSelector({ requirements }), problems };
}

/** Reads what it can, and notes what is wrong with the rest. */
class SelectorReader {
  readonly #options: SelectorOptions;
  readonly #problems: LabelProblem[] = [];
  #more = 0;

  constructor(options: SelectorOptions) {
    this.#options = options;
  }

  problems(path: string): LabelProblem[] {
    if (this.#more === 0) return this.#problems;
    return [...this.#problems, { path, message: `${this.#more} more problems are not shown`, count: this.#more }];
  }

  selector(json: unknown, path: string): Requirement[] {
    if (!isObject(json)) {
      this.#report(path, `${quote(json)} is not a label selector: write {matchLabels: ...}, or {} to match everything`);
      return [];
    }
    const hint = 'a selector has matchLabels and matchExpressions; put labels under matchLabels';
    this.#checkFields(json, ['matchLabels', 'matchExpressions'], path, hint);
    return [
      ...this.#labels(json.matchLabels, `${path}.matchLabels`),
      ...this.#expressions(json.matchExpressions, `${path}.matchExpressions`),
    ];
  }

  #labels(json: unknown, path: string): Requirement[] {
    if (json === undefined || json === null) return [];
    if (!isObject(json)) {
      this.#report(path, `${quote(json)} is not a map of labels: write key: value pairs`);
      return [];
    }
    return Object.entries(json).flatMap(([name, wanted]) => {
      const where = `${path}[${quote(name)}]`;
      const [key, value] = [this.#key(name, where), this.#value(wanted, where)];
      return key === undefined || value === undefined ? [] : [{ key, operator: 'In' as const, values: [value] }];
    });
  }

  #expressions(json: unknown, path: string): Requirement[] {
    if (json === undefined || json === null) return [];
    if (!Array.isArray(json)) {
      this.#report(path, `${quote(json)} is not a list of {key, operator, values}`);
      return [];
    }
    return json.flatMap((expression: unknown, index) => this.#expression(expression, `${path}[${index}]`) ?? []);
  }

  #expression(json: unknown, path: string): Requirement | undefined {
    if (!isObject(json)) {
      this.#report(path, `${quote(json)} is not an expression: write {key, operator, values}`);
      return undefined;
    }
    this.#checkFields(json, ['key', 'operator', 'values'], path, 'an expression has key, operator, values');
    let key: string | undefined;
    if (typeof json.key === 'string') key = this.#key(json.key, `${path}.key`);
    else this.#report(`${path}.key`, `${quote(json.key)} is not a label key: write one such as app`);
    const operator = OPERATORS.find((known) => known === json.operator);
    if (operator === undefined)
      this.#report(`${path}.operator`, `${quote(json.operator)} is no operator: write one of ${OPERATORS.join(', ')}`);
    const values = this.#values(json.values ?? [], operator, `${path}.values`);
    return key === undefined || operator === undefined || values === undefined ? undefined : { key, operator, values };
  }

  #values(json: unknown, operator: Operator | undefined, path: string): string[] | undefined {
    if (!Array.isArray(json)) {
      this.#report(path, `${quote(json)} is not a list of texts`);
      return undefined;
    }
    const values = json.map((text: unknown, index) => this.#value(text, `${path}[${index}]`));
    if ((operator === 'In' || operator === 'NotIn') && json.length === 0) {
      this.#report(path, `${operator} needs at least one value: add values, or use Exists or DoesNotExist`);
      return undefined;
    }
    if ((operator === 'Exists' || operator === 'DoesNotExist') && json.length > 0) {
      this.#report(path, `${operator} takes no values: remove them, or use In or NotIn`);
      return undefined;
    }
    const good = values.filter((text) => text !== undefined);
    return good.length === values.length ? good : undefined;
  }

  #key(text: string, path: string): string | undefined {
    const { key, reason } = readSelectorKey(text, this.#options);
    if (reason !== undefined) this.#report(path, `${quote(text)} ${reason}`);
    return key;
  }

  #value(text: unknown, path: string): string | undefined {
    if (typeof text !== 'string') {
      this.#report(path, `${quote(text)} is not a text: put the label value in quotes`);
      return undefined;
    }
    const problem = labelValueProblem(text);
    if (problem === undefined) return text;
    this.#report(path, `${quote(text)} ${problem}`);
    return undefined;
  }

  #checkFields(json: object, known: readonly string[], path: string, hint: string): void {
    for (const field of Object.keys(json))
      if (!known.includes(field)) this.#report(`${path}.${pathKey(field)}`, `unknown field ${quote(field)}: ${hint}`);
  }

  #report(path: string, message: string): void {
    if (this.#problems.length < MOST) this.#problems.push({ path, message });
    else this.#more += 1;
  }
}

function isObject(json: unknown): json is Record<string, unknown> {
  return typeof json === 'object' && json !== null && !Array.isArray(json);
}

function pathKey(field: string): string {
  return /^[A-Za-z_][A-Za-z0-9_-]*$/.test(field) ? field : quote(field);
}
