/** From a request body to an object of its kind: identity checks, unknown fields, nulls, quantities, types. */
import type { BuiltinSchemas } from './builtin-schema.ts';
import { badRequest, cause, invalid, type StatusError } from './errors.ts';
import { copy, isObject, type Json, type JsonObject, text } from './json.ts';
import { apiVersionOf, type Resource } from './registry.ts';
import { childSchema, EMBEDDED_FIELDS, isSchema, prune, type Resolve, type Schema } from './schema.ts';
import { validate } from './schema-rules.ts';

export type FieldValidation = 'Strict' | 'Warn' | 'Ignore';

export interface Decoded {
  readonly object: JsonObject;
  /** Paths that the kind does not have. */
  readonly unknown: readonly string[];
  /** Texts for Warning headers. */
  readonly warnings: readonly string[];
}

/** What a decoder of Go stumbles over, not a rule of the kind. */
const UNREADABLE = /in body must be of type (byte|date-time):/;

export class Decoder {
  readonly #meta: Schema;
  readonly #resolve: Resolve;

  constructor(schemas: BuiltinSchemas) {
    this.#meta = schemas.ref('V1ObjectMeta');
    this.#resolve = schemas.resolve;
  }

  /**
   * @returns a copy of `body`, pruned to known fields.
   * @throws StatusError BadRequest for another kind's body, for values of the wrong type in built-in kinds, and under
   *   Strict for unknown fields.
   */
  decode(resource: Resource, body: unknown, mode: FieldValidation): Decoded {
    if (!isObject(body)) throw badRequest(`the request body must be a ${resource.kind} object in JSON`);
    const value = copy(body);
    const apiVersion = apiVersionOf(resource);
    const given = text(value, 'apiVersion');
    if (given !== '' && given !== apiVersion) {
      throw badRequest(
        `the API version in the data (${given}) does not match the expected API version (${apiVersion})`,
      );
    }
    const kind = text(value, 'kind');
    if (resource.custom && kind === '')
      throw badRequest(
        `the object provided is unrecognized (must be of type ${resource.kind}): Object 'Kind' is missing`,
      );
    if (resource.custom && kind !== resource.kind) {
      const given = { group: resource.group, plural: resource.plural, kind };
      throw invalid(given, text(value, 'metadata', 'name'), [cause.invalid('kind', kind, `must be ${resource.kind}`)]);
    }
    if (kind !== '' && kind !== resource.kind) {
      throw badRequest(
        `${resource.kind} in version ${JSON.stringify(resource.version)} cannot be handled as a ${resource.kind}: the object provided is of kind ${kind}`,
      );
    }
    const { apiVersion: _a, kind: _k, metadata, ...rest } = value;
    const object: JsonObject = {
      apiVersion,
      kind: resource.kind,
      metadata: isObject(metadata) ? metadata : {},
      ...rest,
    };
    this.#clean(resource, object);
    const unknown = this.#prune(resource, object);
    if (unknown.length > 0 && mode === 'Strict') {
      throw this.#refused(resource, `strict decoding error: ${unknown.join(', ')}`);
    }
    this.#checkTypes(resource, object);
    return { object, unknown, warnings: mode === 'Warn' ? unknown : [] };
  }

  /** Removes what the schema does not know; used again after a patch has added fields. */
  #prune(resource: Resource, object: JsonObject): string[] {
    const found = prune(resource.schema, object, '', resource.resolve, resource.custom);
    if (resource.custom) found.push(...prune(this.#meta, object.metadata ?? {}, 'metadata', this.#resolve));
    return found.map((path) => `unknown field ${JSON.stringify(path)}`);
  }

  #clean(resource: Resource, object: JsonObject): void {
    normalise(resource.resolve(resource.schema), object, resource.resolve, resource.custom);
    normalise(this.#resolve(this.#meta), object.metadata ?? {}, this.#resolve, false);
  }

  #checkTypes(resource: Resource, object: JsonObject): void {
    const causes = validate(this.#meta, object.metadata ?? {}, 'metadata', this.#resolve);
    if (!resource.custom) causes.push(...validate(resource.schema, object, '', resource.resolve));
    const wrong = causes.find((one) => one.reason === 'FieldValueTypeInvalid' || UNREADABLE.test(one.message));
    if (wrong !== undefined) throw this.#refused(resource, `json: ${wrong.field}: ${wrong.message}`);
  }

  #refused(resource: Resource, why: string): StatusError {
    const version = JSON.stringify(resource.version);
    return badRequest(`${resource.kind} in version ${version} cannot be handled as a ${resource.kind}: ${why}`);
  }

  /** All schema violations of a finished object. @throws StatusError Invalid */
  checkSchema(resource: Resource, object: JsonObject): void {
    const { apiVersion: _a, kind: _k, metadata: _m, ...rest } = object;
    const subject = resource.custom ? rest : object;
    const relaxed = resource.custom
      ? { ...resource.schema, required: (resource.schema.required ?? []).filter((n) => !EMBEDDED_FIELDS.includes(n)) }
      : resource.schema;
    // Where a built-in kind has rules of its own, they say what may not be twice.
    const own = !resource.custom && resource.strategy.validate !== undefined;
    const causes = validate(relaxed, subject, '', resource.resolve).filter(
      (one) => !own || one.reason !== 'FieldValueDuplicate',
    );
    if (causes.length > 0) throw invalid(resource, text(object, 'metadata', 'name'), causes);
  }
}

/** Drops nulls that stand for absence and writes quantities as strings, in place. */
function normalise(schema: Schema, value: Json, resolve: Resolve, custom: boolean): void {
  if (Array.isArray(value)) {
    if (schema.items === undefined) return;
    const item = resolve(schema.items);
    value.forEach((entry, i) => {
      if (item['x-weir-quantity'] === true && typeof entry === 'number') value[i] = String(entry);
      else normalise(item, entry, resolve, custom);
    });
    return;
  }
  if (!isObject(value)) return;
  for (const [key, entry] of Object.entries(value)) {
    const declared = childSchema(schema, key);
    if (declared === undefined) continue;
    const child = declared.$ref === undefined ? declared : resolve(declared);
    const typed = child.type !== undefined || child['x-kubernetes-int-or-string'] === true;
    const inMap = isSchema(schema.additionalProperties) && schema.properties === undefined;
    if (entry === null && typed && child.nullable !== true && !(custom && inMap)) delete value[key];
    else if (!custom && isMap(child) && isObject(entry) && Object.keys(entry).length === 0) delete value[key];
    else if (child['x-weir-quantity'] === true && typeof entry === 'number') value[key] = String(entry);
    else normalise(child, entry, resolve, custom);
  }
}

/** A map of a built-in kind: an empty one is none. */
const isMap = (schema: Schema): boolean => isSchema(schema.additionalProperties) && schema.properties === undefined;
