/** Server-side apply: merges a manager's configuration, removes what it gave up, and finds conflicts. */
import { type Cause, StatusError } from './errors.ts';
import { compare, elements, FieldSet, fieldsOf, shapeOf } from './field-set.ts';
import { copy, equal, isObject, type Json, type JsonObject, object, text } from './json.ts';
import { type Entry, type Manager, managedPart, readEntries, sameManager, withEntries } from './managed-fields.ts';
import { apiVersionOf, type Resource } from './registry.ts';
import type { Resolve, Schema } from './schema.ts';

const KUBECTL = 'kubectl';
const LAST_APPLIED = 'kubectl.kubernetes.io/last-applied-configuration';

/**
 * @param live the stored object; undefined creates.
 * @param config the applied configuration, pruned to known fields.
 * @throws StatusError Conflict (reason code FieldManagerConflict in its causes) when others own a field that would
 *   change and `force` is not set.
 */
export function serverSideApply(
  resource: Resource,
  live: JsonObject | undefined,
  config: JsonObject,
  manager: Manager,
  force: boolean,
  time: string,
): JsonObject {
  const { resolve } = resource;
  const schema = resolve(resource.schema);
  const base = live ?? {};
  const wanted = managedPart(config);
  const configSet = fieldsOf(schema, wanted, resolve);
  configSet.member = false;
  const entries = readEntries(live);
  const own = entries.find((entry) => sameManager(entry.manager, manager));
  const others = entries.filter((entry) => !sameManager(entry.manager, manager));

  const merged = merge(copy(base), config, schema, resolve) as JsonObject;
  const owned = others.reduce((all, entry) => all.union(entry.fields), new FieldSet());
  if (own !== undefined) removeGivenUp(merged, own.fields, configSet, owned, schema, resolve);

  const difference = compare(schema, managedPart(base), managedPart(merged), resolve);
  const clashes = others
    .map((entry) => ({ entry, fields: entry.fields.intersect(difference.changed) }))
    .filter(({ fields }) => !fields.empty);
  if (clashes.length > 0 && !force) {
    const allowed = manager.name === KUBECTL ? lastAppliedFields(live, schema, resolve) : new FieldSet();
    if (clashes.some(({ fields }) => !fields.minus(allowed).empty)) throw conflictError(clashes);
  }
  if (manager.name === KUBECTL) refreshLastApplied(merged, config);

  const kept = others.map((entry) => ({
    ...entry,
    fields: entry.fields.minus(difference.changed).minus(difference.removed),
  }));
  const same = own !== undefined && equal(own.fields.toJson(), configSet.toJson());
  const mine: Entry = {
    manager,
    apiVersion: apiVersionOf(resource),
    time: same && own !== undefined ? own.time : time,
    fields: configSet,
  };
  return withEntries(merged, [...kept, mine]);
}

/**
 * The fields that kubectl applied from the client side before: as on the real server, kubectl may take these over
 * without force when it moves to server-side apply.
 */
function lastAppliedFields(live: JsonObject | undefined, schema: Schema, resolve: Resolve): FieldSet {
  const annotation = text(live, 'metadata', 'annotations', LAST_APPLIED);
  if (annotation === '') return new FieldSet();
  let parsed: unknown;
  try {
    parsed = JSON.parse(annotation);
  } catch {
    // Not written by kubectl: it then grants nothing, and the conflict is reported.
    return new FieldSet();
  }
  return isObject(parsed) ? fieldsOf(schema, managedPart(parsed), resolve) : new FieldSet();
}

/** Keeps an existing annotation in step, so that a later client-side apply compares with what is applied now. */
function refreshLastApplied(merged: JsonObject, config: JsonObject): void {
  const annotations = object(merged, 'metadata', 'annotations');
  if (annotations[LAST_APPLIED] !== undefined) annotations[LAST_APPLIED] = `${JSON.stringify(config)}\n`;
}

function merge(live: Json | undefined, config: Json, schema: Schema | undefined, resolve: Resolve): Json {
  if (live === undefined || live === null) return copy(config);
  const shape = shapeOf(schema, config);
  if (shape === 'scalar' || shape === 'atomic' || shape !== shapeOf(schema, live)) return copy(config);
  if (isObject(config) && isObject(live)) {
    for (const part of elements(schema, config, resolve)) {
      const key = part.element.slice(2);
      live[key] = merge(live[key], part.value, part.schema, resolve);
    }
    return live;
  }
  return mergeLists(live, config, schema, resolve);
}

/** Items in the configuration's order, with the live items that it does not name left after their predecessors. */
function mergeLists(live: Json, config: Json, schema: Schema | undefined, resolve: Resolve): Json {
  const old = elements(schema, live, resolve);
  const fresh = elements(schema, config, resolve);
  const byElement = new Map(old.map((part) => [part.element, part.value]));
  const inConfig = new Set(fresh.map((part) => part.element));
  const mergedParts = fresh.map((part) => ({
    element: part.element,
    value: merge(byElement.get(part.element), part.value, part.schema, resolve),
  }));
  let at = 0;
  for (const part of old) {
    const found = mergedParts.findIndex((entry) => entry.element === part.element);
    if (inConfig.has(part.element)) at = Math.max(at, found + 1);
    else {
      mergedParts.splice(at, 0, { element: part.element, value: part.value });
      at += 1;
    }
  }
  return mergedParts.map((part) => part.value);
}

/** Removes from `target` what the manager owned, no longer applies and nobody else owns. */
function removeGivenUp(
  target: Json,
  last: FieldSet,
  config: FieldSet | undefined,
  owned: FieldSet | undefined,
  schema: Schema | undefined,
  resolve: Resolve,
): void {
  const parts = new Map(elements(schema, target, resolve).map((part) => [part.element, part]));
  const gone = new Set<string>();
  for (const [element, lastChild] of last.children) {
    const part = parts.get(element);
    if (part === undefined) continue;
    const [inConfig, inOwned] = [config?.children.get(element), owned?.children.get(element)];
    const othersHold = inOwned !== undefined && !inOwned.empty;
    // An object never loses its metadata, whatever of it was given up.
    const whole = inConfig === undefined && !othersHold && element !== 'f:metadata';
    if (whole) gone.add(element);
    else if (lastChild.children.size > 0) removeGivenUp(part.value, lastChild, inConfig, inOwned, part.schema, resolve);
  }
  if (gone.size === 0) return;
  if (isObject(target)) for (const element of gone) delete target[element.slice(2)];
  else if (Array.isArray(target)) {
    const kept = elements(schema, target, resolve).filter((part) => !gone.has(part.element));
    target.splice(0, target.length, ...kept.map((part) => part.value));
  }
}

function conflictError(clashes: readonly { entry: Entry; fields: FieldSet }[]): StatusError {
  const causes: Cause[] = [];
  const groups: string[] = [];
  for (const { entry, fields } of clashes) {
    const who = describe(entry);
    const paths = fields.paths();
    groups.push(
      paths.length === 1
        ? `conflict with ${who}: ${paths[0]}`
        : `conflicts with ${who}:\n${paths.map((p) => `- ${p}`).join('\n')}`,
    );
    for (const field of paths) causes.push({ reason: 'FieldManagerConflict', message: `conflict with ${who}`, field });
  }
  const count = causes.length;
  const message = `Apply failed with ${count} conflict${count === 1 ? '' : 's'}: ${groups.join('\n')}`;
  return new StatusError(409, 'Conflict', message, { causes });
}

function describe(entry: Entry): string {
  const { manager } = entry;
  const subresource = manager.subresource === '' ? '' : ` with subresource "${manager.subresource}"`;
  const version = manager.operation === 'Update' ? ` using ${entry.apiVersion}` : '';
  return `"${manager.name}"${subresource}${version}`;
}
