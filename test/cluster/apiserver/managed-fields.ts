/** metadata.managedFields: who owns which fields, kept up to date by every write. */
import { compare, FieldSet } from './field-set.ts';
import { equal, isObject, type Json, type JsonObject, list, object, text } from './json.ts';
import { apiVersionOf, type Resource } from './registry.ts';

export interface Manager {
  readonly name: string;
  readonly operation: 'Apply' | 'Update';
  readonly subresource: string;
}

export interface Entry {
  readonly manager: Manager;
  readonly apiVersion: string;
  readonly time: string;
  readonly fields: FieldSet;
}

export const sameManager = (a: Manager, b: Manager): boolean =>
  a.name === b.name && a.operation === b.operation && a.subresource === b.subresource;

export function readEntries(object: JsonObject | undefined): Entry[] {
  return list(object, 'metadata', 'managedFields').map((entry) => ({
    manager: {
      name: text(entry, 'manager'),
      operation: text(entry, 'operation') === 'Apply' ? 'Apply' : 'Update',
      subresource: text(entry, 'subresource'),
    },
    apiVersion: text(entry, 'apiVersion'),
    time: text(entry, 'time'),
    fields: FieldSet.fromJson(isObject(entry) ? entry.fieldsV1 : undefined),
  }));
}

/** The entries as stored: empty sets dropped, appliers first, then by time and name. */
function writeEntries(entries: readonly Entry[]): Json[] {
  const order = (e: Entry): string => `${e.manager.operation === 'Apply' ? 0 : 1} ${e.time} ${e.manager.name}`;
  return entries
    .filter((entry) => !entry.fields.empty)
    .sort((a, b) => (order(a) < order(b) ? -1 : 1))
    .map((entry) => ({
      manager: entry.manager.name,
      operation: entry.manager.operation,
      apiVersion: entry.apiVersion,
      time: entry.time,
      fieldsType: 'FieldsV1',
      fieldsV1: entry.fields.toJson(),
      ...(entry.manager.subresource === '' ? {} : { subresource: entry.manager.subresource }),
    }));
}

const UNMANAGED = [
  'name',
  'namespace',
  'creationTimestamp',
  'selfLink',
  'uid',
  'generation',
  'managedFields',
  'resourceVersion',
];

/** The object without the fields that nobody owns. */
export function managedPart(value: JsonObject): JsonObject {
  const { apiVersion: _a, kind: _k, metadata, ...rest } = value;
  const kept = Object.fromEntries(Object.entries(object(metadata)).filter(([key]) => !UNMANAGED.includes(key)));
  return Object.keys(kept).length === 0 ? rest : { ...rest, metadata: kept };
}

/**
 * The entries that a write starts from: those that its body brings (a client that rewrites ownership, such as kubectl
 * moving from client-side to server-side apply), none when the body holds one empty entry, else the stored ones.
 */
function entriesFor(live: JsonObject | undefined, next: JsonObject): Entry[] {
  if (live === undefined) return [];
  const given = list(next, 'metadata', 'managedFields');
  if (given.length === 1 && equal(given[0], {})) return [];
  return readEntries(given.length === 0 ? live : next);
}

/** What Go's zero value of a built-in kind has, so that its appearing is no change of its own. */
const ZERO: JsonObject = {
  metadata: {},
  spec: {
    podSelector: {},
    containers: [],
    strategy: {},
    updateStrategy: {},
    template: { metadata: {}, spec: { containers: [] } },
    jobTemplate: { metadata: {}, spec: { template: { metadata: {}, spec: { containers: [] } } } },
  },
  status: { loadBalancer: {}, daemonEndpoints: { kubeletEndpoint: {} }, nodeInfo: {} },
};

/** `before` with the parts of `zero` that only `after` has. */
function withZeroes(before: JsonObject, after: JsonObject, zero: JsonObject): JsonObject {
  const out = { ...before };
  for (const [key, value] of Object.entries(zero)) {
    const fresh = after[key];
    if (fresh === undefined || (Array.isArray(value) && !Array.isArray(fresh))) continue;
    const old = out[key];
    if (isObject(value) && isObject(fresh)) out[key] = withZeroes(isObject(old) ? old : {}, fresh, value);
    else if (old === undefined) out[key] = value;
  }
  return out;
}

/**
 * Ownership after a plain write: the writer takes what it added or changed, everyone loses that and what was removed.
 * Returns `next` with its managedFields set; `live` is undefined at creation.
 */
export function recordUpdate(
  resource: Resource,
  live: JsonObject | undefined,
  next: JsonObject,
  manager: Manager,
  time: string,
): JsonObject {
  const schema = resource.resolve(resource.schema);
  const [old, after] = [managedPart(live ?? {}), managedPart(next)];
  const before = resource.custom ? old : withZeroes(old, after, ZERO);
  const { changed, removed } = compare(schema, before, after, resource.resolve);
  const entries = entriesFor(live, next);
  const lost = changed.union(removed);
  const out: Entry[] = [];
  let own: Entry | undefined;
  for (const entry of entries) {
    if (sameManager(entry.manager, manager)) own = entry;
    else out.push({ ...entry, fields: entry.fields.minus(lost) });
  }
  const fields = (own?.fields ?? new FieldSet()).minus(removed).union(changed);
  const same = own !== undefined && equal(own.fields.toJson(), fields.toJson());
  out.push({ manager, apiVersion: apiVersionOf(resource), time: same && own !== undefined ? own.time : time, fields });
  return withEntries(next, out);
}

export function withEntries(next: JsonObject, entries: readonly Entry[]): JsonObject {
  const written = writeEntries(entries);
  const { managedFields: _old, ...metadata } = object(next, 'metadata');
  return { ...next, metadata: written.length === 0 ? metadata : { ...metadata, managedFields: written } };
}
