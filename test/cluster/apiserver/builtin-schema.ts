/**
 * Schemas of built-in kinds, read from the generated models of @kubernetes/client-node: fields and types from the
 * model's attribute map, descriptions and required fields from its declaration file. Read lazily, once per model.
 */
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { ATOMIC_MODELS, ENFORCED_REQUIRED, FIELD_SEMANTICS, KEY_DEFAULTS } from './merge-keys.ts';
import type { Schema } from './schema.ts';

interface Attribute {
  readonly baseName: string;
  readonly type: string;
  readonly format: string;
}

export const REF_PREFIX = '#/components/schemas/';

/** `V1PodSpec` -> `io.k8s.api.v1.PodSpec`: kubectl explain shows the part after the last dot. */
function definitionName(model: string): string {
  const match = /^([A-Z][a-z]+)??V(\d+(?:(?:alpha|beta)\d+)?)([A-Z].*)$/.exec(model);
  if (match === null) return `io.k8s.api.${model}`;
  const group = match[1] === undefined ? '' : `${match[1].toLowerCase()}.`;
  return `io.k8s.api.${group}v${match[2]}.${match[3]}`;
}

export class BuiltinSchemas {
  readonly #folder: string;
  readonly #models = new Map<string, Schema>();
  readonly #byRef = new Map<string, string>();

  constructor() {
    const entry = createRequire(import.meta.url).resolve('@kubernetes/client-node');
    this.#folder = join(dirname(entry), 'gen', 'models');
  }

  /** A reference to a model; `resolve` turns it into the schema. */
  ref(model: string): Schema {
    const $ref = REF_PREFIX + definitionName(model);
    this.#byRef.set($ref, model);
    return { $ref };
  }

  /** The model that a reference made by ref() names. @throws Error for any other reference. */
  modelOf($ref: string): string {
    const model = this.#byRef.get($ref);
    if (model === undefined) throw new Error(`unknown schema reference ${$ref}: declare it with ref() first`);
    return model;
  }

  readonly resolve = (schema: Schema): Schema => {
    if (schema.$ref === undefined) return schema;
    const target = this.model(this.modelOf(schema.$ref));
    const { $ref: _ignored, ...own } = schema;
    return Object.keys(own).length === 0 ? target : { ...target, ...own };
  };

  model(name: string): Schema {
    let found = this.#models.get(name);
    if (found === undefined) {
      found = this.#read(name);
      this.#models.set(name, found);
    }
    return found;
  }

  #read(name: string): Schema {
    const code = readFileSync(join(this.#folder, `${name}.js`), 'utf8');
    const literal = /attributeTypeMap = (\[[\s\S]*?\n\]|\[\]);/.exec(code)?.[1];
    if (literal === undefined) throw new Error(`model ${name} of @kubernetes/client-node has no attribute map`);
    const attributes = JSON.parse(literal) as Attribute[];
    const docs = readDocs(readFileSync(join(this.#folder, `${name}.d.ts`), 'utf8'));
    const properties: Record<string, Schema> = {};
    const required: string[] = [];
    for (const attribute of attributes) {
      const field = this.#type(attribute.type, attribute.format);
      const doc = docs.fields.get(attribute.baseName);
      if (doc !== undefined && doc.description !== '') field.description = doc.description;
      decorate(field, name, attribute.baseName);
      properties[attribute.baseName] = field;
      if (ENFORCED_REQUIRED.has(`${name}.${attribute.baseName}`)) required.push(attribute.baseName);
    }
    const schema: Schema = { type: 'object', properties };
    if (name === 'V1ObjectMeta')
      schema.properties = { ...properties, clusterName: { type: 'string' }, selfLink: { type: 'string' } };
    if (docs.description !== '') schema.description = docs.description;
    if (required.length > 0) schema.required = required;
    if (ATOMIC_MODELS.has(name)) schema['x-kubernetes-map-type'] = 'atomic';
    return schema;
  }

  #type(type: string, format: string): Schema {
    const array = /^Array<(.*)>$/.exec(type)?.[1];
    if (array !== undefined) return { type: 'array', items: this.#type(array, format) };
    const map = /^\{ \[key: string\]: (.*); \}$/.exec(type)?.[1];
    if (map !== undefined) return { type: 'object', additionalProperties: this.#type(map, format) };
    switch (type) {
      case 'string':
        return format === '' || format === 'binary' ? { type: 'string' } : { type: 'string', format };
      case 'number':
        return format.startsWith('int') ? { type: 'integer', format } : { type: 'number' };
      case 'boolean':
        return { type: 'boolean' };
      case 'Date':
      case 'V1MicroTime':
        return { type: 'string', format: 'date-time' };
      case 'IntOrString':
        return { 'x-kubernetes-int-or-string': true };
      case 'any':
      case 'object':
        return { 'x-kubernetes-preserve-unknown-fields': true };
      default:
        return this.ref(type);
    }
  }
}

const QUANTITY_MAPS = new Set([
  'V1ResourceRequirements.limits',
  'V1ResourceRequirements.requests',
  'V1NodeStatus.capacity',
  'V1NodeStatus.allocatable',
  'V1PodSpec.overhead',
  'V1VolumeResourceRequirements.requests',
  'V1VolumeResourceRequirements.limits',
  'V1ContainerStatus.allocatedResources',
]);
const QUANTITIES = new Set(['V1EmptyDirVolumeSource.sizeLimit', 'V1ResourceFieldSelector.divisor']);

function decorate(field: Schema, model: string, name: string): void {
  const key = `${model}.${name}`;
  if (QUANTITY_MAPS.has(key)) field.additionalProperties = { type: 'string', 'x-weir-quantity': true };
  if (QUANTITIES.has(key)) field['x-weir-quantity'] = true;
  const keyDefault = KEY_DEFAULTS[key];
  if (keyDefault !== undefined) field.default = keyDefault;
  const semantics = FIELD_SEMANTICS[key];
  if (field.type === 'array') field['x-kubernetes-list-type'] = 'atomic';
  if (semantics === undefined) return;
  const strategies = [
    ...(semantics.patchKey === undefined ? [] : ['merge']),
    ...(semantics.retainKeys === true ? ['retainKeys'] : []),
  ];
  if (strategies.length > 0) field['x-kubernetes-patch-strategy'] = strategies.join(',');
  if (semantics.patchKey !== undefined && semantics.patchKey !== '') {
    field['x-kubernetes-patch-merge-key'] = semantics.patchKey;
  }
  if (semantics.mapKeys !== undefined) {
    field['x-kubernetes-list-type'] = 'map';
    field['x-kubernetes-list-map-keys'] = [...semantics.mapKeys];
  }
  if (semantics.set === true) field['x-kubernetes-list-type'] = 'set';
  if (semantics.atomic === true && field.type !== 'array') field['x-kubernetes-map-type'] = 'atomic';
}

interface Docs {
  readonly description: string;
  readonly fields: ReadonlyMap<string, { readonly description: string }>;
}

function readDocs(declaration: string): Docs {
  const fields = new Map<string, { description: string }>();
  const clean = (comment: string): string =>
    comment
      .split('\n')
      .map((line) => line.replace(/^\s*\*\s?/, '').trim())
      .join(' ')
      .replaceAll("\\'", "'")
      .replaceAll('\\"', '"')
      .trim();
  for (const match of declaration.matchAll(/\/\*\*((?:(?!\*\/)[\s\S])*)\*\/\s*'([^']+)'\??:/g)) {
    fields.set(match[2] ?? '', { description: clean(match[1] ?? '') });
  }
  const own = /\/\*\*((?:(?!\*\/)[\s\S])*)\*\/\s*export declare class/.exec(declaration)?.[1] ?? '';
  return { description: clean(own), fields };
}
