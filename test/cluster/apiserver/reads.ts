/** Reading: single objects, and lists with paging over a consistent snapshot. */
import { randomUUID } from 'node:crypto';
import { badRequest, expired, notFound, tooLargeRevision } from './errors.ts';
import { type JsonObject, text } from './json.ts';
import { apiVersionOf, type Resource } from './registry.ts';
import { predicate } from './selectors.ts';
import type { Store } from './store.ts';
import type { ListOptions } from './types.ts';

const MAX_SNAPSHOTS = 200;

interface Snapshot {
  readonly objects: readonly JsonObject[];
  readonly revision: number;
  /** The request it belongs to: a token is good for the same list only. */
  readonly scope: string;
}

export interface Listed {
  readonly objects: readonly JsonObject[];
  readonly metadata: JsonObject;
}

interface RevisionOptions {
  readonly resourceVersion?: string;
  /** The list as it was at resourceVersion. */
  readonly exact?: boolean;
}

export class Reads {
  readonly #store: Store;
  readonly #snapshots = new Map<string, Snapshot>();
  readonly #versioned = new WeakMap<JsonObject, Map<Resource, JsonObject>>();

  constructor(store: Store) {
    this.#store = store;
  }

  /** The stored object in the shape of the served version. */
  served(resource: Resource, object: JsonObject): JsonObject {
    if (resource.fromStored === undefined && object.apiVersion === apiVersionOf(resource)) return object;
    let shapes = this.#versioned.get(object);
    if (shapes === undefined) {
      shapes = new Map();
      this.#versioned.set(object, shapes);
    }
    let shape = shapes.get(resource);
    if (shape === undefined) {
      shape = resource.fromStored?.(object) ?? { ...object, apiVersion: apiVersionOf(resource) };
      shapes.set(resource, shape);
    }
    return shape;
  }

  /** @throws StatusError NotFound */
  stored(resource: Resource, namespace: string, name: string): JsonObject {
    const found = this.#store.get(resource.storage, namespace, name);
    if (found === undefined) throw notFound(resource, name);
    return found;
  }

  get(resource: Resource, namespace: string, name: string): JsonObject {
    return this.served(resource, this.stored(resource, namespace, name));
  }

  /** @throws StatusError Expired for a continue token whose snapshot is gone. */
  list(resource: Resource, namespace: string, options: ListOptions & RevisionOptions): Listed {
    const oldest = Number(options.resourceVersion ?? '0');
    if (oldest > this.#store.revision) throw tooLargeRevision(oldest, this.#store.revision);
    const labels = options.labelSelector ?? '';
    const fields = options.fieldSelector ?? '';
    const scope = [resource.storage, namespace, labels, fields].join('|');
    let snapshot: Snapshot;
    let start = 0;
    if (options.continue !== undefined && options.continue !== '') {
      const [id = '', offset] = Buffer.from(options.continue, 'base64url').toString().split(':');
      if (offset === undefined) throw badRequest('invalid continue token: continue key is not valid');
      const found = this.#snapshots.get(id);
      if (found === undefined) {
        throw expired(
          'The provided continue parameter is too old to display a consistent list result. Start a new list without the continue parameter.',
        );
      }
      if (found.scope !== scope)
        throw badRequest(
          'continue key is not valid for this list: keep the namespace and the selectors of the first page',
        );
      snapshot = found;
      start = Number(offset);
    } else {
      const selects = predicate(labels, fields, resource);
      const revision = options.exact === true ? oldest : this.#store.revision;
      const all = this.#store.listAt(resource.storage, namespace, revision);
      if (all === undefined) throw expired(`The resourceVersion for the provided list is too old.`);
      const objects = selects === undefined ? all : all.filter(selects);
      snapshot = { objects, revision, scope };
    }
    const limit = options.limit ?? 0;
    const end = limit > 0 ? Math.min(start + limit, snapshot.objects.length) : snapshot.objects.length;
    const metadata: JsonObject = { resourceVersion: String(snapshot.revision) };
    if (end < snapshot.objects.length) {
      metadata.continue = this.#keep(snapshot, end, options.continue ?? '');
      // The real server does not count through a selector.
      if (labels === '' && fields === '') metadata.remainingItemCount = snapshot.objects.length - end;
    }
    return { objects: snapshot.objects.slice(start, end).map((object) => this.served(resource, object)), metadata };
  }

  forgetSnapshots(): void {
    this.#snapshots.clear();
  }

  #keep(snapshot: Snapshot, offset: number, token: string): string {
    const [known] = Buffer.from(token, 'base64url').toString().split(':');
    const id = known !== undefined && known !== '' ? known : randomUUID();
    this.#snapshots.delete(id);
    this.#snapshots.set(id, snapshot);
    const oldest = this.#snapshots.keys().next();
    if (this.#snapshots.size > MAX_SNAPSHOTS && oldest.done !== true) this.#snapshots.delete(oldest.value);
    return Buffer.from(`${id}:${offset}`).toString('base64url');
  }
}

/** The list object of a kind; items of built-in kinds carry no kind and apiVersion, as on the real server. */
export function listObject(resource: Resource, listed: Listed): JsonObject {
  const items = resource.custom
    ? [...listed.objects]
    : listed.objects.map(({ apiVersion: _a, kind: _k, ...rest }): JsonObject => rest);
  return { kind: resource.listKind, apiVersion: apiVersionOf(resource), metadata: listed.metadata, items };
}

export const uidOf = (object: JsonObject): string => text(object, 'metadata', 'uid');
