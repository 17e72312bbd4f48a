import { clipped } from '@weir/process/printable';
import type { PolicyProblem } from './types.ts';

export type Json = Readonly<Record<string, unknown>>;

/** Problems of each code that are told; beyond them only how many there are. */
const MOST = 50;
/** Characters of a path, of the name of one field in it, and of a message. */
const LONGEST_PATH = 300;
const LONGEST_NAME = 120;
const LONGEST_MESSAGE = 500;

const NONE: Readonly<Record<PolicyProblem['code'], number>> = {
  InvalidSpec: 0,
  BudgetExceeded: 0,
  UnsupportedField: 0,
  Warning: 0,
};

/** A text, or how to make it where it is told. */
type Text = string | (() => string);

/**
 * Collects the problems of one object, in order of the text: who wrote it may have written a million. What is told is bounded in number and
 * size, and so is the work for it.
 */
export class Problems {
  readonly #told: PolicyProblem[] = [];
  readonly #counts = { ...NONE };
  readonly #untold = { ...NONE };
  #refused = false;
  #bounded = 0;

  get list(): readonly PolicyProblem[] {
    const codes = Object.keys(this.#counts) as PolicyProblem['code'][];
    return [
      ...this.#told,
      ...codes.flatMap((code) => {
        const count = this.#untold[code];
        return count > 0 ? [{ code, path: '$', message: `${count} more problems are not shown`, count }] : [];
      }),
    ];
  }

  /** How many there are. */
  get count(): number {
    return Object.values(this.#counts).reduce((sum, each) => sum + each, 0);
  }

  /** @param count as in `PolicyProblem` */
  invalid(path: Text, message: Text, count = 1): void {
    this.#add('InvalidSpec', path, message, count);
  }

  excess(path: Text, message: Text): void {
    this.#add('BudgetExceeded', path, message);
  }

  unsupported(path: Text, message: Text): void {
    this.#add('UnsupportedField', path, message);
  }

  /** The same of what is read as something that stands for all that it may mean, or for nobody: so nothing is `lacking`. */
  bounded(path: Text, message: Text): void {
    this.unsupported(path, message);
    this.#bounded += 1;
  }

  warn(path: Text, message: Text): void {
    this.#add('Warning', path, message);
  }

  /** Something invalid was found in what decides whom the object is about, and where: nothing of it counts. */
  get refused(): boolean {
    return this.#refused;
  }

  /** What is invalid in what `read` reads refuses the whole object. */
  essential<T>(read: () => T): T {
    const before = this.#counts.InvalidSpec;
    const value = read();
    if (this.#counts.InvalidSpec > before) this.#refused = true;
    return value;
  }

  /** Whether `read` finds something that is not as it must be: what it returns then lacks that part. */
  lacking<T>(read: () => T): { readonly value: T; readonly lacks: boolean } {
    const before = this.#bad;
    const value = read();
    return { value, lacks: this.#bad > before };
  }

  get #bad(): number {
    const { InvalidSpec, BudgetExceeded, UnsupportedField } = this.#counts;
    return InvalidSpec + BudgetExceeded + UnsupportedField - this.#bounded;
  }

  #add(code: PolicyProblem['code'], path: Text, message: Text, count = 1): void {
    const before = this.#counts[code];
    this.#counts[code] += count;
    if (before >= MOST) {
      this.#untold[code] += count;
      return;
    }
    this.#told.push({
      code,
      path: clipped(textIn(path), LONGEST_PATH),
      message: clipped(textIn(message), LONGEST_MESSAGE),
      ...(count === 1 ? {} : { count }),
    });
  }
}

function textIn(text: Text): string {
  return typeof text === 'string' ? text : text();
}

export function isObject(value: unknown): value is Json {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Own member only: a field named `constructor` is not found on the prototype. */
export function member(object: Json, field: string): unknown {
  return Object.hasOwn(object, field) ? object[field] : undefined;
}

/** A value as it stands in a message: JSON, cut to 80 characters. */
export function show(value: unknown): string {
  return clipped(JSON.stringify(value) ?? 'an absent value', 80);
}

export function childPath(path: string, field: string): string {
  const plain = /^[A-Za-z_][A-Za-z0-9_-]*$/.test(field);
  if (!plain) return `${path}[${clipped(JSON.stringify(field), LONGEST_NAME)}]`;
  return path === '' ? field : `${path}.${field}`;
}

/**
 * Reports each field that is not among `known`, with the nearest known name.
 * @param refused fields that the caller reports by themselves: not unknown, and nobody is told to write them
 */
export function checkFields(
  object: Json,
  known: readonly string[],
  path: string,
  problems: Problems,
  refused: readonly string[] = [],
): void {
  for (const field of Object.keys(object)) {
    if (known.includes(field) || refused.includes(field)) continue;
    problems.invalid(
      () => childPath(path, field),
      () => {
        const near = nearest(field, known);
        const hint = near === undefined ? `the fields here are ${known.join(', ')}` : `did you mean ${near}?`;
        return `unknown field ${show(field)}: ${hint}`;
      },
    );
  }
}

/**
 * The items of a list member. Absent and null give undefined (spec 2.5: a null list equals an absent one); what is no list
 * is reported and gives undefined.
 */
export function listOf(object: Json, field: string, path: string, problems: Problems): readonly unknown[] | undefined {
  const value = member(object, field);
  if (value === undefined || value === null) return undefined;
  if (Array.isArray(value)) return value;
  problems.invalid(childPath(path, field), `${show(value)} is not a list: write a list, even of one`);
  return undefined;
}

/** The text of a member; undefined when absent or null, reported when it is no text. */
export function textOf(object: Json, field: string, path: string, problems: Problems): string | undefined {
  const value = member(object, field);
  if (value === undefined || value === null) return undefined;
  if (typeof value === 'string') return value;
  problems.invalid(childPath(path, field), `${show(value)} is not a text: put it in quotes`);
  return undefined;
}

/** The known name that is most like the given one, when any is like it. */
export function nearest(given: string, known: readonly string[]): string | undefined {
  let best: { name: string; distance: number } | undefined;
  for (const name of known) {
    const distance = editDistance(given.toLowerCase(), name.toLowerCase());
    if (distance < (best?.distance ?? Math.max(2, Math.ceil(name.length * 0.4)) + 1)) best = { name, distance };
  }
  return best?.name;
}

function editDistance(a: string, b: string): number {
  if (Math.abs(a.length - b.length) > 12) return 99;
  let previous = Array.from({ length: b.length + 1 }, (_, index) => index);
  for (let i = 1; i <= a.length; i += 1) {
    const row = [i];
    for (let j = 1; j <= b.length; j += 1) {
      const change = a[i - 1] === b[j - 1] ? 0 : 1;
      row.push(Math.min((previous[j] ?? 0) + 1, (row[j - 1] ?? 0) + 1, (previous[j - 1] ?? 0) + change));
    }
    previous = row;
  }
  return previous[b.length] ?? 99;
}
