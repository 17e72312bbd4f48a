/** JSON values and the few accessors that the server needs. Nothing here mutates its arguments unless its name says so. */

export type Json = null | boolean | number | string | Json[] | JsonObject;
export interface JsonObject {
  [key: string]: Json;
}

export function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** The value at `path`, or undefined where a step is missing or is no object. */
export function at(value: Json | undefined, ...path: string[]): Json | undefined {
  let current: Json | undefined = value;
  for (const key of path) {
    if (!isObject(current) || !Object.hasOwn(current, key)) return undefined;
    current = current[key];
  }
  return current;
}

export function text(value: Json | undefined, ...path: string[]): string {
  const found = at(value, ...path);
  return typeof found === 'string' ? found : '';
}

export function object(value: Json | undefined, ...path: string[]): JsonObject {
  const found = at(value, ...path);
  return isObject(found) ? found : {};
}

export function list(value: Json | undefined, ...path: string[]): Json[] {
  const found = at(value, ...path);
  return Array.isArray(found) ? found : [];
}

export function number(value: Json | undefined, ...path: string[]): number | undefined {
  const found = at(value, ...path);
  return typeof found === 'number' ? found : undefined;
}

/** A map's string values; others are dropped. */
export function stringMap(value: Json | undefined, ...path: string[]): Record<string, string> {
  const out: Record<string, string> = {};
  for (const [key, entry] of Object.entries(object(value, ...path))) if (typeof entry === 'string') out[key] = entry;
  return out;
}

/** A scalar as text; objects and arrays as JSON; nothing for null and absence. */
export function scalarText(value: Json | undefined): string {
  if (value === undefined || value === null) return '';
  return typeof value === 'object' ? JSON.stringify(value) : String(value);
}

/** A deep copy that may be mutated. */
export function copy<T extends Json>(value: T): T {
  return structuredClone(value);
}

/** Deep equality; the order of keys does not matter. */
export function equal(a: Json | undefined, b: Json | undefined): boolean {
  if (a === b) return true;
  if (Array.isArray(a)) {
    if (!Array.isArray(b) || a.length !== b.length) return false;
    return a.every((entry, i) => equal(entry, b[i]));
  }
  if (!isObject(a) || !isObject(b)) return false;
  const keys = Object.keys(a);
  if (keys.length !== Object.keys(b).length) return false;
  return keys.every((key) => Object.hasOwn(b, key) && equal(a[key], b[key]));
}

/** JSON with sorted keys: equal values give equal text. */
export function canonical(value: Json): string {
  if (Array.isArray(value)) return `[${value.map(canonical).join(',')}]`;
  if (!isObject(value)) return JSON.stringify(value);
  const keys = Object.keys(value).sort();
  return `{${keys.map((key) => `${JSON.stringify(key)}:${canonical(value[key] ?? null)}`).join(',')}}`;
}

/** The object at `key`, created when missing or null; mutates `parent`. */
export function ensureObject(parent: JsonObject, key: string): JsonObject {
  const found = parent[key];
  if (isObject(found)) return found;
  const created: JsonObject = {};
  parent[key] = created;
  return created;
}
