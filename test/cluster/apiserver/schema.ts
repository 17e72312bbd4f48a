/**
 * Structural schemas (the OpenAPI v3 subset that CustomResourceDefinitions use): validation, pruning and defaulting.
 * Built-in kinds are described by the same type, with `$ref` resolved through the definitions given.
 */
import type { CelRule } from './cel.ts';
import { type Cause, cause } from './errors.ts';
import { canonical, copy, isObject, type Json, type JsonObject } from './json.ts';

export interface Schema {
  $ref?: string;
  description?: string;
  type?: string;
  format?: string;
  nullable?: boolean;
  properties?: Record<string, Schema>;
  additionalProperties?: boolean | Schema;
  items?: Schema;
  required?: string[];
  enum?: Json[];
  default?: Json;
  pattern?: string;
  minimum?: number;
  maximum?: number;
  exclusiveMinimum?: boolean;
  exclusiveMaximum?: boolean;
  multipleOf?: number;
  minLength?: number;
  maxLength?: number;
  minItems?: number;
  maxItems?: number;
  uniqueItems?: boolean;
  minProperties?: number;
  maxProperties?: number;
  anyOf?: Schema[];
  oneOf?: Schema[];
  allOf?: Schema[];
  not?: Schema;
  'x-kubernetes-preserve-unknown-fields'?: boolean;
  'x-kubernetes-int-or-string'?: boolean;
  'x-kubernetes-embedded-resource'?: boolean;
  'x-kubernetes-list-type'?: 'atomic' | 'set' | 'map';
  'x-kubernetes-list-map-keys'?: string[];
  'x-kubernetes-map-type'?: 'atomic' | 'granular';
  'x-kubernetes-patch-merge-key'?: string;
  'x-kubernetes-patch-strategy'?: string;
  'x-kubernetes-validations'?: CelRule[];
  /** Built-in kinds: a resource quantity, written as a string but accepted as a number. */
  'x-weir-quantity'?: boolean;
}

/** Turns a schema that is a reference into what it refers to. */
export type Resolve = (schema: Schema) => Schema;

export const EMBEDDED_FIELDS = ['apiVersion', 'kind', 'metadata'];

export const joinPath = (path: string, key: string): string => (path === '' ? key : `${path}.${key}`);

/** The schema of one property, whether declared or through additionalProperties; undefined when unknown. */
export function childSchema(schema: Schema, key: string): Schema | undefined {
  if (schema.properties !== undefined && Object.hasOwn(schema.properties, key)) return schema.properties[key];
  if (isSchema(schema.additionalProperties)) return schema.additionalProperties;
  return undefined;
}

export function isSchema(value: boolean | Schema | undefined): value is Schema {
  return typeof value === 'object';
}

/** Whether unknown keys of this object are kept. */
function keepsUnknown(schema: Schema): boolean {
  if (schema['x-kubernetes-preserve-unknown-fields'] === true) return true;
  return schema.additionalProperties === true;
}

function typeName(value: Json): string {
  if (value === null) return 'null';
  if (Array.isArray(value)) return 'array';
  if (typeof value === 'number') return Number.isInteger(value) ? 'integer' : 'number';
  return typeof value;
}

function matchesType(value: Json, type: string): boolean {
  const actual = typeName(value);
  return actual === type || (type === 'number' && actual === 'integer');
}

/** Regular expressions are compiled once; Go's RE2 syntax differs in little that schemas use. */
const patterns = new Map<string, RegExp>();
export function compilePattern(source: string): RegExp {
  let compiled = patterns.get(source);
  if (compiled === undefined) {
    try {
      compiled = new RegExp(source, 'u');
    } catch {
      compiled = new RegExp(source);
    }
    patterns.set(source, compiled);
  }
  return compiled;
}

const FORMATS: Record<string, (value: string) => boolean> = {
  'date-time': (v) =>
    /^\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)$/.test(v) && !Number.isNaN(Date.parse(v)),
  date: (v) => /^\d{4}-\d\d-\d\d$/.test(v) && !Number.isNaN(Date.parse(v)),
  ipv4: (v) => /^((25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(25[0-5]|2[0-4]\d|1?\d?\d)$/.test(v),
  cidr: (v) => /^[0-9a-fA-F:.]+\/\d{1,3}$/.test(v),
  uuid: (v) => /^[0-9a-fA-F]{8}-?([0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}$/.test(v),
  byte: (v) => /^[A-Za-z0-9+/\s]*={0,2}$/.test(v),
};

/** All violations of `schema` by `value`, but for its rules (schema-rules.ts), in document order; empty means valid. */
export function violations(schema: Schema, value: Json, path: string, resolve: Resolve): Cause[] {
  const out: Cause[] = [];
  check(resolve(schema), value, path, resolve, out);
  return out;
}

function check(schema: Schema, value: Json, path: string, resolve: Resolve, out: Cause[]): void {
  const where = path === '' ? '<nil>' : path;
  if (value === null) {
    if (schema.nullable === true || (schema.type === undefined && schema['x-kubernetes-int-or-string'] !== true))
      return;
    if (schema['x-kubernetes-int-or-string'] === true) {
      out.push(cause.type(where, 'null', `${where} in body must be of type integer or string: "null"`));
      return;
    }
    out.push(cause.type(where, 'null', `${where} in body must be of type ${schema.type}: "null"`));
    return;
  }
  if (schema['x-kubernetes-int-or-string'] === true) {
    if (typeof value !== 'string' && !Number.isInteger(value)) {
      const actual = typeName(value);
      out.push(cause.type(where, actual, `${where} in body must be of type integer,string: "${actual}"`));
      return;
    }
  } else if (schema.type !== undefined && !matchesType(value, schema.type)) {
    const actual = typeName(value);
    out.push(cause.type(where, actual, `${where} in body must be of type ${schema.type}: "${actual}"`));
    return;
  }
  if (schema.enum !== undefined && !schema.enum.some((allowed) => canonical(allowed) === canonical(value))) {
    out.push(cause.notSupported(where, value, schema.enum));
  }
  if (typeof value === 'string') checkString(schema, value, where, out);
  else if (typeof value === 'number') checkNumber(schema, value, where, out);
  else if (Array.isArray(value)) checkArray(schema, value, path, resolve, out);
  else if (isObject(value)) checkObject(schema, value, path, resolve, out);
  checkCombined(schema, value, path, resolve, out);
}

function checkString(schema: Schema, value: string, where: string, out: Cause[]): void {
  const length = Array.from(value).length;
  if (schema.minLength !== undefined && length < schema.minLength) {
    out.push(cause.invalid(where, value, `${where} in body should be at least ${schema.minLength} chars long`));
  }
  if (schema.maxLength !== undefined && length > schema.maxLength) {
    out.push({
      reason: 'FieldValueTooLong',
      message: `Too long: may not be more than ${schema.maxLength} bytes`,
      field: where,
    });
  }
  if (schema.pattern !== undefined && !compilePattern(schema.pattern).test(value)) {
    out.push(cause.invalid(where, value, `${where} in body should match '${schema.pattern}'`));
  }
  const format = schema.format === undefined ? undefined : FORMATS[schema.format];
  if (format !== undefined && !format(value)) {
    out.push(
      cause.invalid(where, value, `${where} in body must be of type ${schema.format}: ${JSON.stringify(value)}`),
    );
  }
}

function checkNumber(schema: Schema, value: number, where: string, out: Cause[]): void {
  const low = schema.minimum;
  if (low !== undefined && (value < low || (schema.exclusiveMinimum === true && value === low))) {
    const word = schema.exclusiveMinimum === true ? 'greater than' : 'greater than or equal to';
    out.push(cause.invalid(where, value, `${where} in body should be ${word} ${low}`));
  }
  const high = schema.maximum;
  if (high !== undefined && (value > high || (schema.exclusiveMaximum === true && value === high))) {
    const word = schema.exclusiveMaximum === true ? 'less than' : 'less than or equal to';
    out.push(cause.invalid(where, value, `${where} in body should be ${word} ${high}`));
  }
  if (schema.multipleOf !== undefined && !Number.isInteger(value / schema.multipleOf)) {
    out.push(cause.invalid(where, value, `${where} in body should be a multiple of ${schema.multipleOf}`));
  }
  if (schema.format === 'int32' && (value > 2147483647 || value < -2147483648)) {
    out.push(cause.invalid(where, value, `${where} in body must be of type int32: "${value}"`));
  }
}

function checkArray(schema: Schema, value: Json[], path: string, resolve: Resolve, out: Cause[]): void {
  const where = path === '' ? '<nil>' : path;
  if (schema.minItems !== undefined && value.length < schema.minItems) {
    out.push(cause.invalid(where, value.length, `${where} in body should have at least ${schema.minItems} items`));
  }
  if (schema.maxItems !== undefined && value.length > schema.maxItems) {
    out.push({
      reason: 'FieldValueTooMany',
      message: `Too many: ${value.length}: must have at most ${schema.maxItems} items`,
      field: where,
    });
  }
  const items = schema.items;
  if (items !== undefined) {
    const resolved = resolve(items);
    value.forEach((entry, i) => {
      check(resolved, entry, `${path}[${i}]`, resolve, out);
    });
  }
  const kind = schema['x-kubernetes-list-type'];
  if (kind !== 'map' && kind !== 'set') return;
  const seen = new Set<string>();
  value.forEach((entry, i) => {
    const key = kind === 'set' ? entry : listKey(schema, entry, resolve);
    const keyText = canonical(key);
    if (seen.has(keyText)) out.push(cause.duplicate(`${path}[${i}]`, key));
    seen.add(keyText);
  });
}

/** The identity of an item of a list of type map: its key fields, with defaults filled in. */
export function listKey(schema: Schema, entry: Json, resolve: Resolve): JsonObject {
  const key: JsonObject = {};
  if (!isObject(entry)) return key;
  const item = schema.items === undefined ? {} : resolve(schema.items);
  for (const name of schema['x-kubernetes-list-map-keys'] ?? []) {
    const value = entry[name] ?? childSchema(item, name)?.default;
    if (value !== undefined && value !== null) key[name] = value;
  }
  return key;
}

function checkObject(schema: Schema, value: JsonObject, path: string, resolve: Resolve, out: Cause[]): void {
  const where = path === '' ? '<nil>' : path;
  const count = Object.keys(value).length;
  if (schema.minProperties !== undefined && count < schema.minProperties) {
    out.push(cause.invalid(where, count, `${where} in body should have at least ${schema.minProperties} properties`));
  }
  if (schema.maxProperties !== undefined && count > schema.maxProperties) {
    out.push({
      reason: 'FieldValueTooMany',
      message: `Too many: ${count}: must have at most ${schema.maxProperties} items`,
      field: where,
    });
  }
  for (const name of schema.required ?? []) {
    if (!Object.hasOwn(value, name)) out.push(cause.required(joinPath(path, name)));
  }
  if (schema['x-kubernetes-embedded-resource'] === true) checkEmbedded(value, path, out);
  for (const [key, entry] of Object.entries(value)) {
    const child = childSchema(schema, key);
    if (child !== undefined) check(resolve(child), entry, joinPath(path, key), resolve, out);
  }
}

function checkEmbedded(value: JsonObject, path: string, out: Cause[]): void {
  for (const name of ['apiVersion', 'kind']) {
    const found = value[name];
    if (found === undefined || found === '') out.push(cause.required(joinPath(path, name), 'must not be empty'));
    else if (typeof found !== 'string') {
      out.push(cause.type(joinPath(path, name), typeName(found), `${joinPath(path, name)} must be a string`));
    }
  }
  if (value.metadata !== undefined && !isObject(value.metadata)) {
    out.push(cause.type(joinPath(path, 'metadata'), typeName(value.metadata), 'must be an object'));
  }
}

function checkCombined(schema: Schema, value: Json, path: string, resolve: Resolve, out: Cause[]): void {
  const where = path === '' ? '<nil>' : path;
  for (const part of schema.allOf ?? []) check(resolve(part), value, path, resolve, out);
  if (schema.anyOf !== undefined) {
    const results = schema.anyOf.map((part) => violations(part, value, path, resolve));
    if (!results.some((causes) => causes.length === 0)) {
      out.push(cause.invalid(where, shown(value), `${where} in body must validate at least one schema (anyOf)`));
      out.push(...best(results));
    }
  }
  if (schema.oneOf !== undefined) {
    const results = schema.oneOf.map((part) => violations(part, value, path, resolve));
    const valid = results.filter((causes) => causes.length === 0).length;
    if (valid !== 1) {
      const found = valid === 0 ? 'Found none valid' : `Found ${valid} valid alternatives`;
      out.push(
        cause.invalid(where, shown(value), `${where} in body must validate one and only one schema (oneOf). ${found}`),
      );
      if (valid === 0) out.push(...best(results));
    }
  }
  if (schema.not !== undefined && violations(schema.not, value, path, resolve).length === 0) {
    out.push(cause.invalid(where, shown(value), `${where} in body must not validate the schema (not)`));
  }
}

/** Of several failed alternatives, the complaints of the one that came closest. */
function best(results: readonly Cause[][]): Cause[] {
  return results.reduce<Cause[]>((a, b) => (a.length === 0 || b.length < a.length ? b : a), []);
}

function shown(value: Json): Json {
  return typeof value === 'object' && value !== null ? (Array.isArray(value) ? 'array' : 'object') : value;
}

/**
 * Removes, in place, the fields that the schema does not know.
 * @returns the paths removed, in document order.
 */
export function prune(schema: Schema, value: Json, path: string, resolve: Resolve, embedded = false): string[] {
  const out: string[] = [];
  pruneInto(resolve(schema), value, path, resolve, embedded, out);
  return out;
}

function pruneInto(schema: Schema, value: Json, path: string, resolve: Resolve, root: boolean, out: string[]): void {
  if (Array.isArray(value)) {
    const items = schema.items;
    if (items === undefined) return;
    const resolved = resolve(items);
    value.forEach((entry, i) => {
      pruneInto(resolved, entry, `${path}[${i}]`, resolve, false, out);
    });
    return;
  }
  if (!isObject(value)) return;
  const open = keepsUnknown(schema) || isUntyped(schema);
  const embedded = root || schema['x-kubernetes-embedded-resource'] === true;
  for (const key of Object.keys(value)) {
    if (embedded && EMBEDDED_FIELDS.includes(key)) continue;
    const child = childSchema(schema, key);
    if (child !== undefined) pruneInto(resolve(child), value[key] ?? null, joinPath(path, key), resolve, false, out);
    else if (!open) {
      out.push(joinPath(path, key));
      delete value[key];
    }
  }
}

/** A schema with no shape at all (a built-in `any`): its content is kept. */
function isUntyped(schema: Schema): boolean {
  return schema.type === undefined && schema.properties === undefined && schema.additionalProperties === undefined;
}

/** Fills in defaults in place. A null for a field that is not nullable but has a default is replaced by it. */
export function applyDefaults(schema: Schema, value: Json, resolve: Resolve): void {
  const resolved = resolve(schema);
  if (Array.isArray(value)) {
    if (resolved.items !== undefined) for (const entry of value) applyDefaults(resolved.items, entry, resolve);
    return;
  }
  if (!isObject(value)) return;
  for (const [key, child] of Object.entries(resolved.properties ?? {})) {
    const target = resolve(child);
    const present = Object.hasOwn(value, key) ? value[key] : undefined;
    const replace = present === undefined || (present === null && target.nullable !== true);
    if (replace && target.default !== undefined) value[key] = copy(target.default);
    const entry = value[key];
    if (entry !== undefined && Object.hasOwn(value, key)) applyDefaults(child, entry, resolve);
  }
  if (isSchema(resolved.additionalProperties)) {
    for (const [key, entry] of Object.entries(value)) {
      if (resolved.properties === undefined || !Object.hasOwn(resolved.properties, key)) {
        applyDefaults(resolved.additionalProperties, entry, resolve);
      }
    }
  }
}
