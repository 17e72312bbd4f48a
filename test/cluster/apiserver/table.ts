/** Table and PartialObjectMetadata: the shapes that `kubectl get` and metadata clients ask for instead of the objects. */
import type { Json, JsonObject } from './json.ts';
import type { Resource } from './registry.ts';

export type View = 'object' | 'table' | 'partial';

/** What the Accept header asks for, the first supported media type in it winning. */
export function viewOf(accept: string): View {
  for (const part of accept.split(',')) {
    const parameters = part.split(';').map((piece) => piece.trim());
    if (parameters.includes('as=Table')) return 'table';
    if (parameters.includes('as=PartialObjectMetadata') || parameters.includes('as=PartialObjectMetadataList'))
      return 'partial';
    if (parameters[0] === 'application/json' || parameters[0] === '*/*') return 'object';
  }
  return 'object';
}

export const partialMetadata = (object: JsonObject): JsonObject => ({
  kind: 'PartialObjectMetadata',
  apiVersion: 'meta.k8s.io/v1',
  metadata: object.metadata ?? {},
});

/** `include`: Metadata (default), Object or None, as the request's includeObject parameter. */
export function toTable(
  resource: Resource,
  objects: readonly JsonObject[],
  metadata: JsonObject,
  include: string,
  now: Date,
  withColumns = true,
): JsonObject {
  const rows = objects.map((object): JsonObject => {
    const cells: Json[] = resource.columns.map((column) => column.value(storedShape(resource, object), now));
    if (include === 'None') return { cells };
    return { cells, object: include === 'Object' ? object : partialMetadata(object) };
  });
  const columnDefinitions: Json[] = resource.columns.map((column) => ({
    name: column.name,
    type: column.type,
    format: column.format ?? (column.name === 'Name' ? 'name' : ''),
    description: column.description ?? '',
    priority: column.priority ?? 0,
  }));
  return {
    kind: 'Table',
    apiVersion: 'meta.k8s.io/v1',
    metadata,
    columnDefinitions: withColumns ? columnDefinitions : null,
    rows,
  };
}

/** Columns of a kind served in two shapes read the stored one. */
const storedShape = (resource: Resource, object: JsonObject): JsonObject => resource.toStored?.(object) ?? object;
