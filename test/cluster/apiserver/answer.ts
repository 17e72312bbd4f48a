/** Answers to requests, whatever carries them. */
import { type JsonObject, text } from './json.ts';
import type { Resource } from './registry.ts';
import type { ApiRequest } from './request.ts';
import { partialMetadata, toTable, viewOf } from './table.ts';

export interface Answer {
  readonly kind: 'answer';
  readonly status: number;
  /** An object, or JSON text or bytes ready to send. */
  readonly body: JsonObject | string | Buffer;
  readonly contentType?: string;
  readonly warnings: readonly string[];
}

export const answer = (body: JsonObject | string | Buffer, status = 200, warnings: readonly string[] = []): Answer => ({
  kind: 'answer',
  status,
  body,
  warnings,
});

/** One object, as the client wants to see it. */
export function oneOf(request: ApiRequest, resource: Resource, object: JsonObject, now: Date): JsonObject {
  const view = viewOf(request.accept);
  if (view === 'object') return object;
  if (view === 'partial') return partialMetadata(object);
  const metadata = { resourceVersion: text(object, 'metadata', 'resourceVersion') };
  return toTable(resource, [object], metadata, request.query.get('includeObject') ?? '', now);
}
