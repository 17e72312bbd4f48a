/**
 * Sets of field paths as metadata.managedFields stores them (FieldsV1), and the comparison of objects by such paths.
 * A path element is `f:name` (a field), `k:{...}` (an item of a list of type map) or `v:...` (an item of a set).
 */
import { canonical, equal, isObject, type Json, type JsonObject } from './json.ts';
import { childSchema, listKey, type Resolve, type Schema } from './schema.ts';

export class FieldSet {
  /** Whether the path that leads here is itself in the set. */
  member = false;
  readonly children = new Map<string, FieldSet>();

  child(element: string): FieldSet {
    let found = this.children.get(element);
    if (found === undefined) {
      found = new FieldSet();
      this.children.set(element, found);
    }
    return found;
  }

  get empty(): boolean {
    return !this.member && [...this.children.values()].every((child) => child.empty);
  }

  static fromJson(value: Json | undefined): FieldSet {
    const set = new FieldSet();
    if (!isObject(value)) return set;
    for (const [element, child] of Object.entries(value)) {
      if (element === '.') set.member = true;
      else {
        const parsed = FieldSet.fromJson(child);
        if (isObject(child) && Object.keys(child).length === 0) parsed.member = true;
        set.children.set(element, parsed);
      }
    }
    return set;
  }

  toJson(): JsonObject {
    const out: JsonObject = {};
    const kept = [...this.children].filter(([, child]) => !child.empty).sort(([a], [b]) => (a < b ? -1 : 1));
    if (this.member && kept.length > 0) out['.'] = {};
    for (const [element, child] of kept) out[element] = child.toJson();
    return out;
  }

  /** Members of this that are (or, with `orAncestor`, lie below) no member of `other`. */
  minus(other: FieldSet): FieldSet {
    const out = new FieldSet();
    out.member = this.member && !other.member;
    for (const [element, child] of this.children) {
      const theirs = other.children.get(element);
      const rest = theirs === undefined ? child : child.minus(theirs);
      if (!rest.empty) out.children.set(element, rest);
    }
    return out;
  }

  union(other: FieldSet): FieldSet {
    const out = new FieldSet();
    out.member = this.member || other.member;
    for (const element of new Set([...this.children.keys(), ...other.children.keys()])) {
      const [mine, theirs] = [this.children.get(element), other.children.get(element)];
      const both = mine === undefined ? theirs : theirs === undefined ? mine : mine.union(theirs);
      if (both !== undefined) out.children.set(element, both);
    }
    return out;
  }

  intersect(other: FieldSet): FieldSet {
    const out = new FieldSet();
    out.member = this.member && other.member;
    for (const [element, child] of this.children) {
      const theirs = other.children.get(element);
      if (theirs === undefined) continue;
      const both = child.intersect(theirs);
      if (!both.empty) out.children.set(element, both);
    }
    return out;
  }

  /** The members as paths in the server's notation: `.spec.ports[port=80,protocol="TCP"].name`. */
  paths(prefix = ''): string[] {
    const out = this.member && prefix !== '' ? [prefix] : [];
    for (const [element, child] of this.children) out.push(...child.paths(prefix + pathText(element)));
    return out;
  }
}

function pathText(element: string): string {
  const rest = element.slice(2);
  if (element.startsWith('f:')) return `.${rest}`;
  if (element.startsWith('v:')) return `[=${rest}]`;
  const key = JSON.parse(rest) as JsonObject;
  return `[${Object.entries(key)
    .map(([name, value]) => `${name}=${JSON.stringify(value)}`)
    .join(',')}]`;
}

export type Shape = 'scalar' | 'atomic' | 'map' | 'struct' | 'list-map' | 'list-set';

/** How server-side apply sees a value under this schema. */
export function shapeOf(schema: Schema | undefined, value: Json): Shape {
  if (Array.isArray(value)) {
    const type = schema?.['x-kubernetes-list-type'];
    return type === 'map' ? 'list-map' : type === 'set' ? 'list-set' : 'atomic';
  }
  if (!isObject(value)) return 'scalar';
  return schema?.['x-kubernetes-map-type'] === 'atomic'
    ? 'atomic'
    : schema?.properties === undefined
      ? 'map'
      : 'struct';
}

export interface Element {
  readonly element: string;
  readonly value: Json;
  readonly schema: Schema | undefined;
}

/** The parts of a granular value, each with its path element. */
export function elements(schema: Schema | undefined, value: Json, resolve: Resolve): Element[] {
  if (Array.isArray(value)) {
    const item = schema?.items === undefined ? undefined : resolve(schema.items);
    const isMap = schema?.['x-kubernetes-list-type'] === 'map';
    return value.map((entry) => ({
      element:
        isMap && schema !== undefined ? `k:${canonical(listKey(schema, entry, resolve))}` : `v:${canonical(entry)}`,
      value: entry,
      schema: item,
    }));
  }
  if (!isObject(value)) return [];
  return Object.entries(value).map(([key, entry]) => {
    const child = schema === undefined ? undefined : childSchema(schema, key);
    return {
      element: `f:${key}`,
      value: entry,
      schema: child === undefined ? undefined : { ...resolve(child), ...withoutRef(child) },
    };
  });
}

function withoutRef(schema: Schema): Schema {
  const { $ref: _ignored, ...own } = schema;
  return own;
}

/**
 * The fields that an applied configuration names; `containers` counts each map,
 * struct and list itself as a field too, as plain writes do.
 */
export function fieldsOf(schema: Schema | undefined, value: Json, resolve: Resolve, containers = false): FieldSet {
  const set = new FieldSet();
  const shape = shapeOf(schema, value);
  if (shape === 'scalar' || shape === 'atomic') {
    set.member = true;
    return set;
  }
  const parts = elements(schema, value, resolve);
  // An empty list of keyed items or of a set names no field.
  if ((parts.length === 0 && isObject(value)) || containers) set.member = true;
  for (const part of parts) {
    const child = fieldsOf(part.schema, part.value, resolve, containers);
    if (shape === 'list-map' || (shape === 'map' && !isScalar(part.value))) child.member = true;
    set.children.set(part.element, child);
  }
  return set;
}

const isScalar = (value: Json): boolean => typeof value !== 'object' || value === null;

export interface Comparison {
  /** Fields added or changed. */
  readonly changed: FieldSet;
  readonly removed: FieldSet;
}

/** What changed from `before` to `after`. */
export function compare(
  schema: Schema | undefined,
  before: Json | undefined,
  after: Json | undefined,
  resolve: Resolve,
): Comparison {
  if (before === undefined || after === undefined) {
    const whole = fieldsOf(schema, (after ?? before) as Json, resolve, true);
    return before === undefined
      ? { changed: whole, removed: new FieldSet() }
      : { changed: new FieldSet(), removed: whole };
  }
  const changed = new FieldSet();
  const removed = new FieldSet();
  const [a, b] = [shapeOf(schema, before), shapeOf(schema, after)];
  if (a !== b || b === 'scalar' || b === 'atomic') {
    if (!equal(before, after)) changed.member = true;
    return { changed, removed };
  }
  const old = new Map(elements(schema, before, resolve).map((part) => [part.element, part]));
  for (const part of elements(schema, after, resolve)) {
    const previous = old.get(part.element);
    old.delete(part.element);
    const inner = compare(part.schema, previous?.value, part.value, resolve);
    if (b === 'list-map' && previous === undefined) inner.changed.member = true;
    if (!inner.changed.empty) changed.children.set(part.element, inner.changed);
    if (!inner.removed.empty) removed.children.set(part.element, inner.removed);
  }
  for (const [element, part] of old) {
    const gone = compare(part.schema, part.value, undefined, resolve).removed;
    if (b === 'list-map') gone.member = true;
    removed.children.set(element, gone);
  }
  return { changed, removed };
}
