/** CustomResourceDefinitions: their own rules, and the resources that they define. */
import { compileCel } from './cel.ts';
import { AGE, age, NAME } from './columns.ts';
import { type Cause, cause } from './errors.ts';
import { at, copy, equal, isObject, type Json, type JsonObject, list, object, scalarText, text } from './json.ts';
import { compileJsonPath } from './jsonpath.ts';
import type { Column, Resource, Strategy } from './registry.ts';
import { compilePattern, type Schema } from './schema.ts';

const NO_REFERENCES = (schema: Schema): Schema => {
  if (schema.$ref !== undefined) throw new Error(`schema of a custom resource holds $ref ${schema.$ref}: inline it`);
  return schema;
};

/** Rules and defaults of CustomResourceDefinition objects; names conflict with `taken` (group, plural -> owner's name). */
export function definitionStrategy(now: () => Date): Strategy {
  return {
    defaults: (o) => {
      const names = object(o, 'spec', 'names');
      if (names.singular === undefined) names.singular = text(names, 'kind').toLowerCase();
      if (names.listKind === undefined) names.listKind = `${text(names, 'kind')}List`;
      const spec = object(o, 'spec');
      if (spec.conversion === undefined) spec.conversion = { strategy: 'None' };
    },
    prepareCreate: (o) => {
      o.status = definitionStatus(o, now());
    },
    prepareUpdate: (o, previous) => {
      const status = copy(object(previous, 'status'));
      const fresh = definitionStatus(o, now());
      const served = [...new Set([...list(status, 'storedVersions'), ...list(fresh, 'storedVersions')])];
      const names = fresh.acceptedNames ?? {};
      o.status = { ...status, acceptedNames: names, storedVersions: served };
    },
    validate: definitionRules,
  };
}

function definitionStatus(o: JsonObject, now: Date): JsonObject {
  const at = `${now.toISOString().slice(0, 19)}Z`;
  const storage = list(o, 'spec', 'versions').find((version) => isObject(version) && version.storage === true);
  const condition = (type: string, reason: string, message: string): JsonObject => ({
    type,
    status: 'True',
    lastTransitionTime: at,
    reason,
    message,
  });
  return {
    conditions: [
      condition('NamesAccepted', 'NoConflicts', 'no conflicts found'),
      condition('Established', 'InitialNamesAccepted', 'the initial names have been accepted'),
    ],
    acceptedNames: copy(object(o, 'spec', 'names')),
    storedVersions: storage === undefined ? [] : [text(storage, 'name')],
  };
}

function definitionRules(o: JsonObject, previous: JsonObject | undefined): Cause[] {
  const out: Cause[] = [];
  const expected = `${text(o, 'spec', 'names', 'plural')}.${text(o, 'spec', 'group')}`;
  if (text(o, 'metadata', 'name') !== expected) {
    out.push(cause.invalid('metadata.name', text(o, 'metadata', 'name'), 'must be spec.names.plural+"."+spec.group'));
  }
  const scope = text(o, 'spec', 'scope');
  if (scope !== 'Namespaced' && scope !== 'Cluster') {
    out.push(cause.notSupported('spec.scope', scope, ['Cluster', 'Namespaced']));
  }
  if (text(o, 'spec', 'conversion', 'strategy') === 'Webhook') {
    out.push(
      cause.forbidden('spec.conversion.strategy', 'this server calls no webhooks to convert; use strategy None'),
    );
  }
  const versions = list(o, 'spec', 'versions');
  const storage = versions.filter((version) => at(version, 'storage') === true).length;
  if (storage !== 1) {
    out.push(cause.invalid('spec.versions', storage, 'must have exactly one version marked as storage version'));
  }
  versions.forEach((version, i) => {
    const path = `spec.versions[${i}].schema.openAPIV3Schema`;
    const schema = at(version, 'schema', 'openAPIV3Schema');
    if (!isObject(schema)) out.push(cause.required(path, 'schemas are required'));
    else if (schema.type !== 'object')
      out.push(cause.invalid(`${path}.type`, schema.type, 'must be object at the root'));
    else schemaRules(schema, path, out);
  });
  for (const field of ['scope', 'group'] as const) {
    const before = at(previous, 'spec', field);
    if (previous !== undefined && !equal(before, at(o, 'spec', field))) {
      out.push(cause.invalid(`spec.${field}`, at(o, 'spec', field), 'field is immutable'));
    }
  }
  return out;
}

const TYPES = ['array', 'boolean', 'integer', 'number', 'object', 'string'];

/** What makes a schema unusable, told with its path; structural completeness is checked as far as pruning needs it. */
function schemaRules(schema: JsonObject, path: string, out: Cause[]): void {
  celRules(list(schema, 'x-kubernetes-validations'), `${path}.x-kubernetes-validations`, out);
  if (schema.$ref !== undefined) out.push(cause.forbidden(`${path}.$ref`, '$ref is not supported'));
  if (schema.type !== undefined && !TYPES.includes(scalarText(schema.type))) {
    out.push(cause.notSupported(`${path}.type`, schema.type, TYPES));
  }
  if (typeof schema.pattern === 'string') {
    try {
      compilePattern(schema.pattern);
    } catch (error) {
      out.push(
        cause.invalid(`${path}.pattern`, schema.pattern, `must be a valid regular expression: ${String(error)}`),
      );
    }
  }
  const properties = object(schema, 'properties');
  for (const [name, child] of Object.entries(properties)) {
    if (!isObject(child)) continue;
    if (
      child.type === undefined &&
      child['x-kubernetes-int-or-string'] !== true &&
      child['x-kubernetes-preserve-unknown-fields'] !== true
    ) {
      out.push(cause.required(`${path}.properties[${name}].type`, 'must not be empty for specified object fields'));
    }
    schemaRules(child, `${path}.properties[${name}]`, out);
  }
  if (isObject(schema.additionalProperties))
    schemaRules(schema.additionalProperties, `${path}.additionalProperties`, out);
  if (isObject(schema.items)) schemaRules(schema.items, `${path}.items`, out);
  if (schema.type === 'array' && !isObject(schema.items))
    out.push(cause.required(`${path}.items`, 'must be specified'));
  const listType = schema['x-kubernetes-list-type'];
  if (listType === 'map' && list(schema, 'x-kubernetes-list-map-keys').length === 0) {
    out.push(
      cause.required(`${path}.x-kubernetes-list-map-keys`, 'must not be empty if x-kubernetes-list-type is map'),
    );
  }
}

/** What is not evaluated here is not accepted either. */
function celRules(rules: readonly Json[], path: string, out: Cause[]): void {
  rules.forEach((each, index) => {
    const where = `${path}[${index}]`;
    const rule = text(each, 'rule');
    for (const field of isObject(each) ? Object.keys(each) : [])
      if (!['rule', 'message'].includes(field))
        out.push(cause.forbidden(`${where}.${field}`, 'this server evaluates plain rules alone'));
    if (/\boldSelf\b/.test(rule)) out.push(cause.forbidden(`${where}.rule`, 'this server knows no transition rules'));
    try {
      compileCel(rule);
    } catch (error) {
      out.push(cause.invalid(`${where}.rule`, rule, `compilation failed: ${String(error)}`));
    }
  });
}

/** The resources that a definition serves, one for each served version. */
export function definedResources(definition: JsonObject): Resource[] {
  const spec = object(definition, 'spec');
  const group = text(spec, 'group');
  const names = object(spec, 'names');
  const versions = list(spec, 'versions').filter(isObject);
  const stored = versions.find((version) => version.storage === true);
  return versions
    .filter((version) => version.served === true)
    .map((version) => {
      const schema = copy(object(version, 'schema', 'openAPIV3Schema')) as unknown as Schema;
      return {
        group,
        version: text(version, 'name'),
        plural: text(names, 'plural'),
        singular: text(names, 'singular'),
        kind: text(names, 'kind'),
        listKind: text(names, 'listKind'),
        namespaced: spec.scope === 'Namespaced',
        shortNames: list(names, 'shortNames').map(String),
        categories: list(names, 'categories').map(String),
        statusSubresource: at(version, 'subresources', 'status') !== undefined,
        hasGeneration: true,
        conditionalUpdates: true,
        schema,
        resolve: NO_REFERENCES,
        columns: [NAME, ...columns(version)],
        custom: true,
        storage: `${group}/${text(names, 'plural')}`,
        storageVersion: `${group}/${text(stored, 'name')}`,
        fields: selectable(version),
        strategy: {},
      };
    });
}

function selectable(version: JsonObject): Record<string, (object: JsonObject) => string> {
  const out: Record<string, (object: JsonObject) => string> = {};
  for (const entry of list(version, 'selectableFields')) {
    const path = text(entry, 'jsonPath');
    const read = compileJsonPath(path);
    out[path.replace(/^\./, '')] = (o) => scalarText(read(o)[0]);
  }
  return out;
}

function columns(version: JsonObject): Column[] {
  const declared = list(version, 'additionalPrinterColumns');
  if (declared.length === 0) return [AGE];
  return declared.map((entry) => {
    const read = compileJsonPath(text(entry, 'jsonPath'));
    const type = text(entry, 'type');
    const priority = at(entry, 'priority');
    const format = text(entry, 'format');
    return {
      name: text(entry, 'name'),
      type: type === 'date' ? 'string' : type,
      description: text(entry, 'description'),
      priority: typeof priority === 'number' ? priority : 0,
      ...(format === '' ? {} : { format }),
      value: (o, now) => cell(read(o), type, now),
    };
  });
}

function cell(values: Json[], type: string, now: Date): Json {
  const value = values[0];
  if (value === undefined || value === null) return type === 'string' ? '' : null;
  if (type === 'date') return typeof value === 'string' ? age(value, now) : '<invalid>';
  if (type === 'integer') return typeof value === 'number' ? Math.trunc(value) : null;
  if (type === 'number') return typeof value === 'number' ? value : null;
  if (type === 'boolean') return typeof value === 'boolean' ? value : null;
  if (values.length > 1) return values.map((v) => (typeof v === 'object' ? JSON.stringify(v) : String(v))).join(',');
  return typeof value === 'object' ? JSON.stringify(value) : String(value);
}
