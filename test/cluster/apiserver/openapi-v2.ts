/**
 * The OpenAPI v2 document at /openapi/v2. kubectl judges by it whatever the server cannot judge for it: the items of a
 * `kind: List`, which no server serves, are checked for unknown and missing fields before any of them is sent.
 *
 * Built from the v3 definitions. What v2 cannot say (nullable, any of, a field that is a number or a string in a custom
 * kind) is left out, as the real server leaves it out: the schema then allows more, and the server decides.
 */
import { REF_PREFIX } from './builtin-schema.ts';
import { isObject, type Json, type JsonObject } from './json.ts';
import type { OpenApi } from './openapi.ts';
import { ProtobufWriter } from './protobuf-writer.ts';
import type { Registry } from './registry.ts';

/** The form that kubectl reads. Clients ask with an `@` or a dot before the version; the `@` is no legal media type to answer with. */
export const OPENAPI_V2_PROTOBUF = 'application/com.github.proto-openapi.spec.v2.v1.0+protobuf';

/** Whether an Accept header asks for the protobuf form. */
export const wantsProtobuf = (accept: string): boolean =>
  accept.includes(OPENAPI_V2_PROTOBUF) || accept.includes(OPENAPI_V2_PROTOBUF.replace('v2.v1', 'v2@v1'));

const INFO = { title: 'Kubernetes', version: 'v1.34.0' };
const QUERY_PARAMETERS = ['dryRun', 'fieldManager', 'fieldValidation'];

interface Document {
  readonly definitions: JsonObject;
  /** The patch operations: clients look up there which query parameters a kind understands. */
  readonly patches: readonly { readonly path: string; readonly gvk: JsonObject }[];
}

interface Cached {
  readonly revision: number;
  readonly document: Document;
  json?: string;
  protobuf?: Buffer;
}

export class OpenApiV2 {
  readonly #registry: Registry;
  readonly #openApi: OpenApi;
  #cached: Cached | undefined;

  constructor(registry: Registry, openApi: OpenApi) {
    this.#registry = registry;
    this.#openApi = openApi;
  }

  json(): string {
    const cached = this.#current();
    cached.json ??= JSON.stringify(documentJson(cached.document));
    return cached.json;
  }

  /** The document as a message `openapi.v2.Document`. */
  protobuf(): Buffer {
    const cached = this.#current();
    cached.protobuf ??= documentProtobuf(cached.document);
    return cached.protobuf;
  }

  #current(): Cached {
    const { revision } = this.#registry;
    if (this.#cached === undefined || this.#cached.revision !== revision) {
      this.#cached = { revision, document: this.#build() };
    }
    return this.#cached;
  }

  #build(): Document {
    const definitions: JsonObject = {};
    const patches: { path: string; gvk: JsonObject }[] = [];
    for (const [group, versions] of this.#registry.groups()) {
      for (const version of versions) {
        const v3 = this.#openApi.build(group, version);
        const schemas = isObject(v3.components) && isObject(v3.components.schemas) ? v3.components.schemas : {};
        for (const [name, schema] of Object.entries(schemas)) {
          const known = definitions[name];
          // A definition that several group versions use names its kind only in the one that serves it.
          if (isObject(known) && known[GVK] !== undefined) continue;
          definitions[name] = toV2(schema);
        }
        for (const [path, item] of Object.entries(isObject(v3.paths) ? v3.paths : {})) {
          const patch = isObject(item) ? item.patch : undefined;
          const gvk = isObject(patch) ? patch[GVK] : undefined;
          if (isObject(gvk)) patches.push({ path, gvk });
        }
      }
    }
    return { definitions, patches };
  }
}

const GVK = 'x-kubernetes-group-version-kind';
const DEFINITIONS = '#/definitions/';
const KEPT = ['description', 'format', 'type', 'required', 'enum', 'pattern'];

/** A v3 schema in the words of v2. */
function toV2(schema: Json): JsonObject {
  if (!isObject(schema)) return {};
  const out: JsonObject = {};
  if (typeof schema.description === 'string') out.description = schema.description;
  const [only] = Array.isArray(schema.allOf) ? schema.allOf : [];
  if (isObject(only) && typeof only.$ref === 'string') {
    out.$ref = DEFINITIONS + only.$ref.slice(REF_PREFIX.length);
    return out;
  }
  for (const [key, value] of Object.entries(schema)) if (key.startsWith('x-kubernetes-')) out[key] = value;
  delete out['x-kubernetes-validations'];
  if (schema.format === 'int-or-string' || schema['x-kubernetes-int-or-string'] === true) {
    return { ...out, type: 'string', format: 'int-or-string' };
  }
  if (schema.nullable === true || schema['x-kubernetes-preserve-unknown-fields'] === true) return out;
  for (const key of KEPT) if (schema[key] !== undefined) out[key] = schema[key];
  const { properties, items, additionalProperties } = schema;
  if (isObject(properties)) {
    out.properties = Object.fromEntries(Object.entries(properties).map(([name, child]) => [name, toV2(child)]));
  }
  if (items !== undefined) out.items = toV2(items);
  if (additionalProperties !== undefined) {
    out.additionalProperties = isObject(additionalProperties) ? toV2(additionalProperties) : additionalProperties;
  }
  return out;
}

function documentJson({ definitions, patches }: Document): JsonObject {
  const parameters = QUERY_PARAMETERS.map((name): JsonObject => ({ name, in: 'query', type: 'string' }));
  const paths = patches.map(({ path, gvk }): [string, JsonObject] => [
    path,
    { patch: { parameters, responses: {}, 'x-kubernetes-action': 'patch', [GVK]: gvk } },
  ]);
  return { swagger: '2.0', info: INFO, paths: Object.fromEntries(paths), definitions };
}

/** Field numbers as in the published message definitions of package openapi.v2. */
function documentProtobuf({ definitions, patches }: Document): Buffer {
  return new ProtobufWriter()
    .string(1, '2.0')
    .message(2, (info) => info.string(1, INFO.title).string(2, INFO.version))
    .message(8, (paths) => {
      for (const { path, gvk } of patches) {
        paths.message(2, (named) => {
          named.string(1, path).message(2, (item) => item.message(8, (patch) => writePatch(patch, gvk)));
        });
      }
    })
    .message(9, (all) => {
      for (const [name, schema] of Object.entries(definitions)) writeNamed(all, name, schema);
    })
    .bytes();
}

function writePatch(operation: ProtobufWriter, gvk: JsonObject): void {
  for (const name of QUERY_PARAMETERS) {
    operation.message(8, (item) => {
      item.message(1, (parameter) => {
        parameter.message(2, (plain) => {
          plain.message(3, (query) => query.string(2, 'query').string(4, name).string(6, 'string'));
        });
      });
    });
  }
  operation.message(9, () => {});
  writeExtension(operation, 13, 'x-kubernetes-action', 'patch');
  writeExtension(operation, 13, GVK, gvk);
}

/** Any value travels as YAML text, and JSON is YAML. */
function writeExtension(writer: ProtobufWriter, field: number, name: string, value: Json): void {
  writer.message(field, (named) => {
    named.string(1, name).message(2, (any) => any.string(2, JSON.stringify(value)));
  });
}

function writeNamed(writer: ProtobufWriter, name: string, schema: Json): void {
  writer.message(1, (named) => {
    named.string(1, name).message(2, (value) => writeSchema(value, isObject(schema) ? schema : {}));
  });
}

const textOf = (value: Json | undefined): string | undefined => (typeof value === 'string' ? value : undefined);

function writeSchema(writer: ProtobufWriter, schema: JsonObject): void {
  const { properties, items, additionalProperties } = schema;
  writer
    .string(1, textOf(schema.$ref))
    .string(2, textOf(schema.format))
    .string(4, textOf(schema.description))
    .string(13, textOf(schema.pattern));
  if (Array.isArray(schema.required)) writer.strings(19, schema.required.map(String));
  for (const value of Array.isArray(schema.enum) ? schema.enum : []) {
    writer.message(20, (any) => any.string(2, JSON.stringify(value)));
  }
  if (isObject(additionalProperties)) {
    writer.message(21, (item) => item.message(1, (inner) => writeSchema(inner, additionalProperties)));
  } else if (additionalProperties !== undefined) {
    writer.message(21, (item) => item.bool(2, additionalProperties === true));
  }
  const type = textOf(schema.type);
  if (type !== undefined) writer.message(22, (item) => item.strings(1, [type]));
  if (isObject(items)) writer.message(23, (item) => item.message(1, (inner) => writeSchema(inner, items)));
  if (isObject(properties)) {
    writer.message(25, (all) => {
      for (const [name, child] of Object.entries(properties)) writeNamed(all, name, child);
    });
  }
  for (const [key, value] of Object.entries(schema)) {
    if (key.startsWith('x-kubernetes-')) writeExtension(writer, 31, key, value);
  }
}
