/** From a URL path to what it addresses. */
import { noSuchResource } from './errors.ts';
import type { Registry, Resource } from './registry.ts';

export interface Route {
  readonly resource: Resource;
  readonly namespace: string;
  /** Empty for the collection. */
  readonly name: string;
  readonly subresource: string;
  /** A collection over all namespaces of a namespaced kind: it can be read only. */
  readonly anywhere: boolean;
}

export interface GroupVersionPath {
  readonly group: string;
  readonly version: string;
  readonly rest: readonly string[];
}

/** Splits /api/v1/... and /apis/G/V/...; undefined for other paths. */
export function splitPath(path: string): GroupVersionPath | undefined {
  const parts = path
    .split('/')
    .filter((part) => part !== '')
    .map(decodeURIComponent);
  if (parts[0] === 'api' && parts[1] !== undefined) return { group: '', version: parts[1], rest: parts.slice(2) };
  if (parts[0] === 'apis' && parts[1] !== undefined && parts[2] !== undefined) {
    return { group: parts[1], version: parts[2], rest: parts.slice(3) };
  }
  return undefined;
}

/** @throws StatusError NotFound for paths that no served resource has. */
export function routeOf(registry: Registry, at: GroupVersionPath): Route {
  let [...rest] = at.rest;
  let namespace = '';
  if (rest[0] === 'namespaces' && rest.length >= 3 && !(rest.length === 3 && isNamespaceSubresource(rest[2]))) {
    namespace = rest[1] ?? '';
    rest = rest.slice(2);
  }
  const [plural = '', name = '', subresource = '', extra] = rest;
  const resource = registry.find(at.group, at.version, plural);
  if (resource === undefined || extra !== undefined) throw noSuchResource();
  if (!resource.namespaced && namespace !== '') throw noSuchResource();
  if (resource.namespaced && namespace === '' && name !== '') throw noSuchResource();
  return { resource, namespace, name, subresource, anywhere: resource.namespaced && namespace === '' };
}

const isNamespaceSubresource = (part: string | undefined): boolean => part === 'status' || part === 'finalize';
