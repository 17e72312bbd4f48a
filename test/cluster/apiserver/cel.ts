/** Rules of CustomResourceDefinitions in CEL (x-kubernetes-validations), as far as such rules of Weir go: no transition rules, no message expressions. */
import { Environment } from '@marcbachmann/cel-js';
import { type Cause, cause } from './errors.ts';
import { isObject, type Json } from './json.ts';

export interface CelRule {
  readonly rule: string;
  readonly message?: string;
}

type Compiled = (context: { readonly self: Json }) => unknown;

const environment = new Environment().registerVariable('self', 'dyn');

/** Rules are compiled once. */
const compiled = new Map<string, Compiled>();

/** @throws Error where it is no expression */
export function compileCel(rule: string): Compiled {
  let found = compiled.get(rule);
  if (found === undefined) {
    found = environment.parse(rule) as Compiled;
    compiled.set(rule, found);
  }
  return found;
}

/** What the value breaks. */
export function celCauses(rules: readonly CelRule[], value: Json, where: string): Cause[] {
  const self = plain(value);
  return rules
    .filter(({ rule }) => compileCel(rule)({ self }) !== true)
    .map(({ rule, message = `failed rule: ${rule}` }) =>
      cause.invalid(where, Array.isArray(value) ? 'array' : 'object', message),
    );
}

/** Objects of this realm, which alone are maps to the library: a structured clone in a test is of another. */
function plain(value: Json): Json {
  if (Array.isArray(value)) return Array.from(value, plain);
  if (!isObject(value)) return value;
  return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, plain(each)]));
}
