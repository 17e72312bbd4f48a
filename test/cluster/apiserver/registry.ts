/** The kinds served: what a resource is, and how one is found from a path, a kind or a storage key. */
import type { Cause } from './errors.ts';
import type { Json, JsonObject } from './json.ts';
import type { Resolve, Schema } from './schema.ts';

export interface Column {
  readonly name: string;
  readonly type: string;
  readonly format?: string;
  readonly description?: string;
  /** 0 is always shown, above only with `-o wide`. */
  readonly priority?: number;
  readonly value: (object: JsonObject, now: Date) => Json;
}

/** What a kind does beyond its schema. Hooks mutate the object they get and are pure otherwise. */
export interface Strategy {
  /** Fills defaults on every write, before validation. */
  readonly defaults?: (object: JsonObject) => void;
  /** Rules beyond the schema; on update `previous` is the stored object. */
  readonly validate?: (object: JsonObject, previous: JsonObject | undefined) => Cause[];
  /** Texts for Warning headers about an object that is taken. */
  readonly warnings?: (object: JsonObject) => string[];
  /** Sets what only the server may set at creation (the status, allocated addresses). */
  readonly prepareCreate?: (object: JsonObject) => void;
  readonly prepareUpdate?: (object: JsonObject, previous: JsonObject) => void;
}

export interface Resource {
  readonly group: string;
  readonly version: string;
  readonly plural: string;
  readonly singular: string;
  readonly kind: string;
  readonly listKind: string;
  readonly namespaced: boolean;
  readonly shortNames: readonly string[];
  readonly categories: readonly string[];
  /** Whether status is a subresource: then the main endpoint ignores status and status alone bumps no generation. */
  readonly statusSubresource: boolean;
  /** Fields outside metadata and status count for metadata.generation. */
  readonly hasGeneration: boolean;
  /** Whether a PUT must carry the resourceVersion that it changes. */
  readonly conditionalUpdates: boolean;
  readonly schema: Schema;
  readonly resolve: Resolve;
  readonly columns: readonly Column[];
  readonly custom: boolean;
  /** Storage key: versions and aliases of one resource share it. */
  readonly storage: string;
  /** apiVersion under which objects are stored. */
  readonly storageVersion: string;
  /** Values of field selectors beyond metadata.name and metadata.namespace. */
  readonly fields: Readonly<Record<string, (object: JsonObject) => string>>;
  readonly strategy: Strategy;
  /** Where stored and served shapes differ in more than apiVersion. */
  readonly fromStored?: (object: JsonObject) => JsonObject;
  readonly toStored?: (object: JsonObject) => JsonObject;
  readonly readOnlyVerbs?: boolean;
}

export const apiVersionOf = (resource: { group: string; version: string }): string =>
  resource.group === '' ? resource.version : `${resource.group}/${resource.version}`;

/** `v1` before `v1beta1` before `v1alpha1`, higher numbers first: the order of discovery. */
function compareVersions(a: string, b: string): number {
  const rank = (version: string): [number, number, number] => {
    const match = /^v(\d+)(?:(alpha|beta)(\d+))?$/.exec(version);
    if (match === null) return [0, 0, 0];
    const stage = match[2] === undefined ? 3 : match[2] === 'beta' ? 2 : 1;
    return [stage, Number(match[1]), Number(match[3] ?? 0)];
  };
  const [ra, rb] = [rank(a), rank(b)];
  for (let i = 0; i < 3; i++) {
    const difference = (rb[i] ?? 0) - (ra[i] ?? 0);
    if (difference !== 0) return difference;
  }
  return a.localeCompare(b);
}

export class Registry {
  readonly #resources = new Map<string, Resource>();
  /** Grows when the set of kinds changes: caches of discovery and OpenAPI are keyed by it. */
  revision = 0;

  add(resource: Resource): void {
    this.#resources.set(key(resource.group, resource.version, resource.plural), resource);
    this.revision += 1;
  }

  /** Removes all versions of a resource. */
  removeAll(group: string, plural: string): void {
    for (const [id, resource] of this.#resources) {
      if (resource.group === group && resource.plural === plural) this.#resources.delete(id);
    }
    this.revision += 1;
  }

  find(group: string, version: string, plural: string): Resource | undefined {
    return this.#resources.get(key(group, version, plural));
  }

  /** The resource that stores under `storage`: the one whose served version is the stored one. */
  byStorage(storage: string): Resource | undefined {
    const all = [...this.#resources.values()].filter((resource) => resource.storage === storage);
    return all.find((resource) => apiVersionOf(resource) === resource.storageVersion) ?? all[0];
  }

  byKind(group: string, kind: string): Resource | undefined {
    return [...this.#resources.values()].find((resource) => resource.group === group && resource.kind === kind);
  }

  all(): Resource[] {
    return [...this.#resources.values()];
  }

  /** Groups with their versions in order of preference; the core group comes first. */
  groups(): Map<string, string[]> {
    const groups = new Map<string, string[]>();
    for (const resource of this.#resources.values()) {
      const versions = groups.get(resource.group) ?? [];
      if (!versions.includes(resource.version)) versions.push(resource.version);
      groups.set(resource.group, versions);
    }
    for (const versions of groups.values()) versions.sort(compareVersions);
    return groups;
  }

  inGroupVersion(group: string, version: string): Resource[] {
    return this.all().filter((resource) => resource.group === group && resource.version === version);
  }
}

const key = (group: string, version: string, plural: string): string => `${group}/${version}/${plural}`;
