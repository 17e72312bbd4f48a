/** Rules in CEL of a structural schema (`x-kubernetes-validations`). */
import { celCauses } from './cel.ts';
import type { Cause } from './errors.ts';
import { isObject, type Json } from './json.ts';
import { childSchema, isSchema, joinPath, type Resolve, type Schema, violations } from './schema.ts';

/** Where something has one of these, no rule is evaluated. */
const BLOCKING = [
  'FieldValueNotSupported',
  'FieldValueRequired',
  'FieldValueTooLong',
  'FieldValueTooMany',
  'FieldValueTypeInvalid',
];
const NOT_CHECKED: Cause = {
  reason: 'FieldValueInvalid',
  message:
    'Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation',
  field: '<nil>',
};

const KNOWN_RULES = new WeakMap<Schema, boolean>();

/** Whether a custom resource's schema has rules, at any depth. */
function hasRules(schema: Schema): boolean {
  const known = KNOWN_RULES.get(schema);
  if (known !== undefined) return known;
  // Schemas of built-in kinds go round.
  KNOWN_RULES.set(schema, false);
  const below = [...Object.values(schema.properties ?? {}), schema.items, schema.additionalProperties].filter(isSchema);
  const has = schema['x-kubernetes-validations'] !== undefined || below.some(hasRules);
  KNOWN_RULES.set(schema, has);
  return has;
}

/** What the rules of a schema say of a value of it. */
function evaluated(schema: Schema, value: Json, path: string): Cause[] {
  if (value === null || !hasRules(schema)) return [];
  const own = celCauses(schema['x-kubernetes-validations'] ?? [], value, path === '' ? '<nil>' : path);
  if (Array.isArray(value)) {
    const { items } = schema;
    return items === undefined
      ? own
      : [...own, ...value.flatMap((item, at) => evaluated(items, item, `${path}[${at}]`))];
  }
  if (!isObject(value)) return own;
  const below = Object.entries(value).flatMap(([key, entry]) => {
    const child = childSchema(schema, key);
    return child === undefined ? [] : evaluated(child, entry, joinPath(path, key));
  });
  return [...own, ...below];
}

/** All violations of `schema` and of its rules by `value`; empty means valid. */
export function validate(schema: Schema, value: Json, path: string, resolve: Resolve): Cause[] {
  const found = violations(schema, value, path, resolve);
  const resolved = resolve(schema);
  if (!hasRules(resolved)) return found;
  const isBlocked = found.some(({ reason }) => BLOCKING.includes(reason));
  return [...found, ...(isBlocked ? [NOT_CHECKED] : evaluated(resolved, value, path))];
}
