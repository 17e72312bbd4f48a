/** Strategic merge patch, by the merge keys and strategies of built-in schemas. */
import { badRequest } from './errors.ts';
import { copy, equal, isObject, type Json, type JsonObject } from './json.ts';
import { childSchema, type Resolve, type Schema } from './schema.ts';

const ORDER = '$setElementOrder/';
const DELETE_PRIMITIVES = '$deleteFromPrimitiveList/';

/** The result of applying `patch` to `live`; neither is changed. */
export function strategicMerge(live: JsonObject, patch: JsonObject, schema: Schema, resolve: Resolve): JsonObject {
  return mergeObject(copy(live), patch, resolve(schema), resolve);
}

function mergeObject(live: JsonObject, patch: JsonObject, schema: Schema, resolve: Resolve): JsonObject {
  if (patch.$patch === 'replace') return withoutDirectives(patch);
  if (patch.$patch === 'delete') return {};
  const retained = Array.isArray(patch.$retainKeys) ? patch.$retainKeys.map(String) : undefined;
  if (retained !== undefined) for (const key of Object.keys(live)) if (!retained.includes(key)) delete live[key];
  for (const [key, value] of Object.entries(patch)) {
    if (key === '$patch' || key === '$retainKeys' || key.startsWith(ORDER)) continue;
    if (key.startsWith(DELETE_PRIMITIVES)) {
      const name = key.slice(DELETE_PRIMITIVES.length);
      const current = live[name];
      if (Array.isArray(current) && Array.isArray(value)) {
        live[name] = current.filter((entry) => !value.some((gone) => equal(gone, entry)));
      }
      continue;
    }
    const child = childSchema(schema, key);
    const field = child === undefined ? undefined : { ...resolve(child), ...child };
    live[key] = mergeValue(live[key], value, field, patch[`${ORDER}${key}`], resolve);
    if (value === null) delete live[key];
  }
  for (const [key, order] of Object.entries(patch)) {
    const name = key.slice(ORDER.length);
    if (!key.startsWith(ORDER) || Object.hasOwn(patch, name)) continue;
    const child = childSchema(schema, name);
    const current = live[name];
    if (Array.isArray(current) && child !== undefined)
      live[name] = arrange(current, orderOf(order, []), current, mergeKey(resolve(child)));
  }
  return live;
}

const mergeKey = (schema: Schema): string | undefined => schema['x-kubernetes-patch-merge-key'];

function mergeValue(
  live: Json | undefined,
  patch: Json,
  schema: Schema | undefined,
  order: Json | undefined,
  resolve: Resolve,
): Json {
  if (isObject(patch)) return mergeObject(isObject(live) ? live : {}, patch, schema ?? {}, resolve);
  if (!Array.isArray(patch)) return patch;
  const merges = schema?.['x-kubernetes-patch-strategy']?.includes('merge') === true;
  if (!merges || schema === undefined) return patch.map(stripped);
  const current = Array.isArray(live) ? live : [];
  const key = mergeKey(schema);
  if (key === undefined) {
    const added = patch.filter((entry) => !current.some((old) => equal(old, entry)));
    return arrange([...current, ...added], orderOf(order, patch), current, undefined);
  }
  return arrange(mergeList(current, patch, key, schema, resolve), orderOf(order, patch), current, key);
}

function mergeList(live: Json[], patch: Json[], key: string, schema: Schema, resolve: Resolve): Json[] {
  if (patch.some((entry) => isObject(entry) && entry.$patch === 'replace')) {
    return patch.filter((entry) => !(isObject(entry) && entry.$patch !== undefined)).map(stripped);
  }
  const item = schema.items === undefined ? {} : resolve(schema.items);
  const out = [...live];
  for (const entry of patch) {
    if (!isObject(entry))
      throw badRequest(`strategic merge patch: an item of a list merged by ${key} must be an object`);
    const id = entry[key];
    if (id === undefined) throw badRequest(`map: ${JSON.stringify(entry)} does not contain declared merge key: ${key}`);
    const position = out.findIndex((old) => isObject(old) && equal(old[key], id));
    if (entry.$patch === 'delete') {
      if (position >= 0) out.splice(position, 1);
      continue;
    }
    const old = out[position];
    if (isObject(old)) out[position] = mergeObject(old, entry, item, resolve);
    else out.push(mergeObject({}, entry, item, resolve));
  }
  return out;
}

/**
 * The order of a merged list: the items that the patch names (in $setElementOrder, else by themselves) keep the patch's
 * order, the others theirs in the live list; between the two, live order decides where both are known, else the patch's
 * item goes first.
 */
function arrange(items: Json[], named: readonly Json[], live: readonly Json[], key: string | undefined): Json[] {
  const id = (entry: Json): string =>
    JSON.stringify((key === undefined ? entry : isObject(entry) ? entry[key] : null) ?? null);
  const rank = new Map(named.map((entry, i) => [id(entry), i]));
  const place = new Map(live.map((entry, i) => [id(entry), i]));
  const ranked = (entry: Json): number => rank.get(id(entry)) ?? -1;
  const left = items.filter((entry) => rank.has(id(entry))).sort((a, b) => ranked(a) - ranked(b));
  const right = items.filter((entry) => !rank.has(id(entry)));
  const out: Json[] = [];
  while (left.length > 0 && right.length > 0) {
    const [l, r] = [place.get(id(left[0] ?? null)), place.get(id(right[0] ?? null))];
    const takeRight = l !== undefined && r !== undefined && r < l;
    out.push(...(takeRight ? right : left).splice(0, 1));
  }
  return [...out, ...left, ...right];
}

const orderOf = (order: Json | undefined, patch: Json[]): Json[] => (Array.isArray(order) ? order : patch);

function stripped(value: Json): Json {
  if (Array.isArray(value)) return value.map(stripped);
  return isObject(value) ? withoutDirectives(value) : value;
}

function withoutDirectives(value: JsonObject): JsonObject {
  const out: JsonObject = {};
  for (const [key, entry] of Object.entries(value)) {
    if (!key.startsWith('$') || key === '$ref') out[key] = stripped(entry);
  }
  return out;
}
