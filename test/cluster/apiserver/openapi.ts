/** OpenAPI v3 documents per group version: what kubectl explain, apply and its query parameter checks read. */
import { type BuiltinSchemas, REF_PREFIX } from './builtin-schema.ts';
import type { Json, JsonObject } from './json.ts';
import type { Registry, Resource } from './registry.ts';
import type { Schema } from './schema.ts';

const gvPath = (group: string, version: string): string =>
  group === '' ? `api/${version}` : `apis/${group}/${version}`;

/** The index document at /openapi/v3. */
export function openApiIndex(registry: Registry): JsonObject {
  const paths: JsonObject = {};
  for (const [group, versions] of registry.groups()) {
    for (const version of versions) {
      const path = gvPath(group, version);
      paths[path] = { serverRelativeURL: `/openapi/v3/${path}?hash=${registry.revision}` };
    }
  }
  return { paths };
}

export class OpenApi {
  readonly #registry: Registry;
  readonly #schemas: BuiltinSchemas;
  readonly #cache = new Map<string, { revision: number; text: string }>();

  constructor(registry: Registry, schemas: BuiltinSchemas) {
    this.#registry = registry;
    this.#schemas = schemas;
  }

  /** The document of a group version as JSON text, or undefined when it is not served. */
  document(group: string, version: string): string | undefined {
    const key = `${group}/${version}`;
    const cached = this.#cache.get(key);
    if (cached !== undefined && cached.revision === this.#registry.revision) return cached.text;
    if (this.#registry.inGroupVersion(group, version).length === 0) return undefined;
    const text = JSON.stringify(this.build(group, version));
    this.#cache.set(key, { revision: this.#registry.revision, text });
    return text;
  }

  /** The document of a group version; without definitions when it is not served. */
  build(group: string, version: string): JsonObject {
    const resources = this.#registry.inGroupVersion(group, version);
    const definitions = new Map<string, Json>();
    const paths: JsonObject = {};
    for (const resource of resources) {
      const name = resource.custom ? customName(resource) : this.#include(resource.schema, definitions);
      const root = resource.custom ? this.#customRoot(resource, definitions) : definitions.get(name);
      definitions.set(name, { ...(root as JsonObject), 'x-kubernetes-group-version-kind': [gvk(resource)] });
      Object.assign(paths, pathsOf(resource, name));
    }
    return {
      openapi: '3.0.0',
      info: { title: 'Kubernetes', version: 'v1.34.0' },
      paths,
      components: { schemas: Object.fromEntries(definitions) },
    };
  }

  #customRoot(resource: Resource, definitions: Map<string, Json>): JsonObject {
    const meta = this.#schemas.ref('V1ObjectMeta');
    this.#include(meta, definitions);
    const root = { ...resource.schema } as JsonObject;
    const properties = (root.properties ?? {}) as JsonObject;
    root.properties = {
      ...properties,
      apiVersion: { type: 'string', description: 'Group and version of this object.' },
      kind: { type: 'string', description: 'Kind of this object.' },
      metadata: { description: 'Standard object metadata.', allOf: [{ $ref: meta.$ref ?? '' }] },
    };
    return root;
  }

  /** Adds the referenced definition and all that it refers to; returns its name. */
  #include(schema: Schema, definitions: Map<string, Json>): string {
    const name = (schema.$ref ?? '').slice(REF_PREFIX.length);
    if (definitions.has(name)) return name;
    const resolved = this.#schemas.resolve({ $ref: schema.$ref ?? '' });
    definitions.set(name, {});
    definitions.set(name, this.#render(resolved, definitions));
    return name;
  }

  #render(schema: Schema, definitions: Map<string, Json>): JsonObject {
    if (schema.$ref !== undefined) {
      this.#include(schema, definitions);
      const { $ref, ...own } = schema;
      const plain = this.#plain(own, definitions);
      return { ...plain, default: {}, allOf: [{ $ref }] };
    }
    return this.#plain(schema, definitions);
  }

  #plain(schema: Schema, definitions: Map<string, Json>): JsonObject {
    const {
      properties,
      items,
      additionalProperties,
      'x-weir-quantity': _q,
      'x-kubernetes-int-or-string': either,
      ...rest
    } = schema;
    // Not copied in depth: the document is only ever read.
    const out = { ...rest } as JsonObject;
    if (either === true) {
      out.format = 'int-or-string';
      out.oneOf = [{ type: 'integer' }, { type: 'string' }];
    }
    if (properties !== undefined) {
      out.properties = Object.fromEntries(
        Object.entries(properties).map(([key, child]) => [key, this.#render(child, definitions)]),
      );
    }
    if (items !== undefined) out.items = this.#render(items, definitions);
    if (typeof additionalProperties === 'object')
      out.additionalProperties = this.#render(additionalProperties, definitions);
    return out;
  }
}

const gvk = (resource: Resource): JsonObject => ({
  group: resource.group,
  version: resource.version,
  kind: resource.kind,
});

function customName(resource: Resource): string {
  return `${resource.group.split('.').reverse().join('.')}.${resource.version}.${resource.kind}`;
}

const query = (name: string): JsonObject => ({ name, in: 'query', schema: { type: 'string', uniqueItems: true } });

function pathsOf(resource: Resource, definition: string): JsonObject {
  const base = `/${gvPath(resource.group, resource.version)}${resource.namespaced ? '/namespaces/{namespace}' : ''}/${resource.plural}`;
  const body = (media: readonly string[]): JsonObject => ({
    content: Object.fromEntries(media.map((type) => [type, { schema: { $ref: REF_PREFIX + definition } }])),
  });
  const operation = (action: string, media: readonly string[], write: boolean): JsonObject => ({
    operationId: `${action}${resource.kind}${resource.group}${resource.version}`,
    parameters: write ? [query('dryRun'), query('fieldManager'), query('fieldValidation')] : [],
    ...(media.length === 0 ? {} : { requestBody: body(media) }),
    responses: { '200': { description: 'OK', ...body(['application/json']) } },
    'x-kubernetes-action': action,
    'x-kubernetes-group-version-kind': gvk(resource),
  });
  const json = ['application/json'];
  const patches = [
    'application/apply-patch+yaml',
    'application/json-patch+json',
    'application/merge-patch+json',
    ...(resource.custom ? [] : ['application/strategic-merge-patch+json']),
  ];
  return {
    [base]: {
      get: operation('list', [], false),
      post: operation('post', json, true),
      delete: operation('deletecollection', [], true),
    },
    [`${base}/{name}`]: {
      get: operation('get', [], false),
      put: operation('put', json, true),
      patch: operation('patch', patches, true),
      delete: operation('delete', json, true),
    },
  };
}
