/** JSON patch (RFC 6902) and JSON merge patch (RFC 7386), and which patch a media type names. */
import jsonPatch, { type Operation } from 'fast-json-patch';
import { badRequest, StatusError, unsupportedMediaType } from './errors.ts';
import { copy, isObject, type Json, type JsonObject } from './json.ts';
import type { Resource } from './registry.ts';
import { strategicMerge } from './strategic-merge.ts';
import type { PatchType } from './types.ts';

const MEDIA: Readonly<Record<string, PatchType>> = {
  'application/json-patch+json': 'json',
  'application/merge-patch+json': 'merge',
  'application/strategic-merge-patch+json': 'strategic',
  'application/apply-patch+yaml': 'apply',
};

/** @throws StatusError 415 for media types that this kind does not take. */
export function patchTypeOf(mediaType: string, resource: Resource): PatchType {
  const type = Object.hasOwn(MEDIA, mediaType) ? MEDIA[mediaType] : undefined;
  const accepted = Object.keys(MEDIA).filter((media) => !resource.custom || MEDIA[media] !== 'strategic');
  if (type === undefined || (type === 'strategic' && resource.custom)) throw unsupportedMediaType(accepted);
  return type;
}

/** The patched object; `live` is not changed. */
export function applyPatch(resource: Resource, live: JsonObject, type: PatchType, body: Json): JsonObject {
  if (type === 'json') return applyJsonPatch(live, body);
  if (!isObject(body)) throw badRequest('the patch must be an object');
  if (type === 'merge') return mergePatch(copy(live), body) as JsonObject;
  if (resource.custom) throw unsupportedMediaType(Object.keys(MEDIA).filter((media) => MEDIA[media] !== 'strategic'));
  return strategicMerge(live, body, resource.schema, resource.resolve);
}

function applyJsonPatch(live: JsonObject, body: Json): JsonObject {
  if (!Array.isArray(body)) throw badRequest('a JSON patch must be an array of operations');
  let result: unknown;
  try {
    result = jsonPatch.applyPatch(copy(live), body as unknown as Operation[], true, true, true).newDocument;
  } catch (error) {
    const why = error instanceof Error ? (error.message.split('\n')[0] ?? '') : String(error);
    throw new StatusError(422, 'Invalid', `the server rejected our request due to an error in our request: ${why}`, {});
  }
  if (!isObject(result)) throw badRequest('a JSON patch must leave an object');
  return result;
}

/** RFC 7386; mutates `target`. */
export function mergePatch(target: Json, patch: Json): Json {
  if (!isObject(patch)) return patch;
  const out = isObject(target) ? target : {};
  for (const [key, value] of Object.entries(patch)) {
    if (value === null) delete out[key];
    else out[key] = mergePatch(Object.hasOwn(out, key) ? (out[key] ?? null) : null, value);
  }
  return out;
}
