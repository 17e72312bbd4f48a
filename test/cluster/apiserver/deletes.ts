/** Deletion: grace periods, finalizers, owners and dependents, and the emptying of namespaces. */
import { conflict, forbidden } from './errors.ts';
import { isObject, type JsonObject, list, number, object, text } from './json.ts';
import { timestamp } from './object-meta.ts';
import type { Reads } from './reads.ts';
import type { Registry, Resource } from './registry.ts';
import type { Store } from './store.ts';
import type { DeleteOptions } from './types.ts';

export interface Deleted {
  readonly object: JsonObject;
  /** Whether it is gone, not only marked. */
  readonly gone: boolean;
}

const FOREGROUND = 'foregroundDeletion';
const ORPHAN = 'orphan';
const PROTECTED = new Set(['default', 'kube-system', 'kube-public']);

export class Deletes {
  readonly #store: Store;
  readonly #reads: Reads;
  readonly #registry: Registry;
  readonly #now: () => Date;

  constructor(store: Store, reads: Reads, registry: Registry, now: () => Date) {
    this.#store = store;
    this.#reads = reads;
    this.#registry = registry;
    this.#now = now;
    store.subscribe('*', (change) => {
      if (change.type === 'DELETED') this.#afterRemoval(change.object);
    });
  }

  /** @throws StatusError NotFound, Conflict (preconditions), Forbidden (protected namespaces) */
  delete(resource: Resource, namespace: string, name: string, options: DeleteOptions): Deleted {
    const stored = this.#reads.stored(resource, namespace, name);
    const { uid, resourceVersion } = options.preconditions ?? {};
    const unmet = (field: string, wanted: string, actual: string, why: string): never => {
      // The real server names the kind here, not the resource.
      const what = { group: resource.group, plural: resource.kind, kind: resource.kind };
      throw conflict(
        what,
        name,
        `the ${field} in the precondition (${wanted}) does not match the ${field} in record (${actual}). The object might have been ${why}`,
      );
    };
    const actualUid = text(stored, 'metadata', 'uid');
    if (uid !== undefined && uid !== actualUid) unmet('UID', uid, actualUid, 'deleted and then recreated');
    const actual = text(stored, 'metadata', 'resourceVersion');
    if (resourceVersion !== undefined && resourceVersion !== actual)
      unmet('ResourceVersion', resourceVersion, actual, 'modified');
    if (resource.storage === '/namespaces' && PROTECTED.has(name)) {
      throw forbidden(resource, name, 'this namespace may not be deleted');
    }
    if (options.dryRun === true) return { object: this.#reads.served(resource, stored), gone: true };
    const result = this.#delete(resource, stored, options);
    return { object: this.#reads.served(resource, result.object), gone: result.gone };
  }

  /** Removes an object whose last finalizer is gone. */
  finalize(resource: Resource, last: JsonObject): void {
    if (resource.storage === '/namespaces') {
      this.#emptyNamespace(last);
      return;
    }
    const stored = this.#store.get(
      resource.storage,
      text(last, 'metadata', 'namespace'),
      text(last, 'metadata', 'name'),
    );
    if (stored !== undefined) this.#store.remove(resource.storage, stored);
  }

  #delete(resource: Resource, stored: JsonObject, options: DeleteOptions): Deleted {
    const finalizers = list(stored, 'metadata', 'finalizers').map(String);
    const dependents = this.#store.dependents(text(stored, 'metadata', 'uid'));
    if (options.propagationPolicy === 'Foreground' && dependents.length > 0) finalizers.push(FOREGROUND);
    const grace = this.#grace(resource, stored, options);
    const wasMarked = text(stored, 'metadata', 'deletionTimestamp') !== '';
    if (options.propagationPolicy === 'Orphan') this.#orphan(stored, dependents);
    const kept = [...new Set(finalizers)].filter((name) => name !== ORPHAN);
    const namespace = resource.storage === '/namespaces';
    if (kept.length === 0 && grace === 0 && !namespace) {
      return { object: this.#store.remove(resource.storage, stored), gone: true };
    }
    const before = number(stored, 'metadata', 'deletionGracePeriodSeconds') ?? Number.POSITIVE_INFINITY;
    let marked = stored;
    if (!wasMarked || grace < before || kept.length !== list(stored, 'metadata', 'finalizers').length) {
      marked = this.#mark(resource, stored, Math.min(grace, before), kept);
    }
    if (kept.includes(FOREGROUND)) this.#foreground(resource, marked, dependents);
    if (namespace) this.#clearNamespace(marked);
    const left = this.#store.get(
      resource.storage,
      text(stored, 'metadata', 'namespace'),
      text(stored, 'metadata', 'name'),
    );
    return { object: left ?? marked, gone: left === undefined };
  }

  /** Seconds until removal: only a pod that runs on a node is waited for, until its node deletes it with grace 0. */
  #grace(resource: Resource, stored: JsonObject, options: DeleteOptions): number {
    if (resource.storage !== '/pods' || text(stored, 'spec', 'nodeName') === '') return 0;
    const phase = text(stored, 'status', 'phase');
    if (phase === 'Succeeded' || phase === 'Failed') return 0;
    return Math.max(0, options.gracePeriodSeconds ?? number(stored, 'spec', 'terminationGracePeriodSeconds') ?? 30);
  }

  #mark(resource: Resource, stored: JsonObject, grace: number, finalizers: readonly string[]): JsonObject {
    const when = new Date(this.#now().getTime() + grace * 1000);
    const metadata: JsonObject = {
      ...object(stored, 'metadata'),
      deletionTimestamp: timestamp(when),
      ...(resource.storage === '/namespaces' ? {} : { deletionGracePeriodSeconds: grace }),
    };
    if (finalizers.length > 0) metadata.finalizers = [...finalizers];
    if (resource.hasGeneration) metadata.generation = (number(metadata, 'generation') ?? 0) + 1;
    const next: JsonObject = { ...stored, metadata };
    if (resource.storage === '/namespaces') next.status = { ...object(stored, 'status'), phase: 'Terminating' };
    return this.#store.put(resource.storage, next);
  }

  #foreground(
    resource: Resource,
    owner: JsonObject,
    dependents: readonly { resource: string; object: JsonObject }[],
  ): void {
    for (const dependent of dependents) this.#deleteStored(dependent.resource, dependent.object, 'Foreground');
    this.#releaseOwner(resource, owner);
  }

  /** Ends a foreground deletion once no dependent is left. */
  #releaseOwner(resource: Resource, owner: JsonObject): void {
    if (this.#store.dependents(text(owner, 'metadata', 'uid')).length > 0) return;
    const stored = this.#store.get(
      resource.storage,
      text(owner, 'metadata', 'namespace'),
      text(owner, 'metadata', 'name'),
    );
    if (stored === undefined) return;
    const finalizers = list(stored, 'metadata', 'finalizers').filter((name) => name !== FOREGROUND);
    const { finalizers: _all, ...metadata } = object(stored, 'metadata');
    const next = { ...stored, metadata: finalizers.length === 0 ? metadata : { ...metadata, finalizers } };
    if (finalizers.length === 0) this.#store.remove(resource.storage, next);
    else this.#store.put(resource.storage, next);
  }

  #orphan(owner: JsonObject, dependents: readonly { resource: string; object: JsonObject }[]): void {
    const uid = text(owner, 'metadata', 'uid');
    for (const dependent of dependents) {
      const owners = list(dependent.object, 'metadata', 'ownerReferences').filter(
        (entry) => text(entry, 'uid') !== uid,
      );
      const { ownerReferences: _all, ...metadata } = object(dependent.object, 'metadata');
      this.#store.put(dependent.resource, {
        ...dependent.object,
        metadata: owners.length === 0 ? metadata : { ...metadata, ownerReferences: owners },
      });
    }
  }

  #deleteStored(storage: string, stored: JsonObject, policy: 'Background' | 'Foreground'): void {
    const resource = this.#registry.byStorage(storage);
    if (resource !== undefined) this.#delete(resource, stored, { propagationPolicy: policy });
  }

  /** Garbage collection: dependents go with their last owner; namespaces go with their last object. */
  #afterRemoval(gone: JsonObject): void {
    const uid = text(gone, 'metadata', 'uid');
    for (const dependent of this.#store.dependents(uid)) {
      const others = list(dependent.object, 'metadata', 'ownerReferences').filter(
        (owner) => text(owner, 'uid') !== uid,
      );
      const alive = others.some((owner) => this.#ownerExists(dependent.object, owner as JsonObject));
      if (!alive) this.#deleteStored(dependent.resource, dependent.object, 'Background');
    }
    for (const owner of list(gone, 'metadata', 'ownerReferences').filter(isObject)) {
      const found = this.#findOwner(gone, owner);
      if (found === undefined || !list(found.object, 'metadata', 'finalizers').includes(FOREGROUND)) continue;
      if (text(found.object, 'metadata', 'deletionTimestamp') !== '') this.#releaseOwner(found.resource, found.object);
    }
    const namespace = text(gone, 'metadata', 'namespace');
    const home = namespace === '' ? undefined : this.#store.get('/namespaces', '', namespace);
    if (home !== undefined && text(home, 'metadata', 'deletionTimestamp') !== '') this.#emptyNamespace(home);
  }

  #findOwner(dependent: JsonObject, owner: JsonObject): { resource: Resource; object: JsonObject } | undefined {
    const version = text(owner, 'apiVersion');
    const group = version.includes('/') ? (version.split('/')[0] ?? '') : '';
    const resource = this.#registry.byKind(group, text(owner, 'kind'));
    if (resource === undefined) return undefined;
    const namespace = resource.namespaced ? text(dependent, 'metadata', 'namespace') : '';
    const found = this.#store.get(resource.storage, namespace, text(owner, 'name'));
    return found !== undefined && text(found, 'metadata', 'uid') === owner.uid
      ? { resource, object: found }
      : undefined;
  }

  #ownerExists(dependent: JsonObject, owner: JsonObject): boolean {
    return this.#findOwner(dependent, owner) !== undefined;
  }

  #clearNamespace(namespace: JsonObject): void {
    const name = text(namespace, 'metadata', 'name');
    for (const storage of this.#store.resources()) {
      const resource = this.#registry.byStorage(storage);
      if (resource?.namespaced !== true) continue;
      for (const stored of this.#store.list(storage, name)) {
        const current = this.#store.get(storage, name, text(stored, 'metadata', 'name'));
        if (current !== undefined) this.#delete(resource, current, {});
      }
    }
    this.#emptyNamespace(namespace);
  }

  #emptyNamespace(namespace: JsonObject): void {
    const name = text(namespace, 'metadata', 'name');
    const stored = this.#store.get('/namespaces', '', name);
    if (stored === undefined || list(stored, 'metadata', 'finalizers').length > 0) return;
    const occupied = this.#store.resources().some((storage) => {
      const resource = this.#registry.byStorage(storage);
      return resource?.namespaced === true && this.#store.list(storage, name).length > 0;
    });
    if (!occupied) this.#store.remove('/namespaces', { ...stored, spec: {} });
  }
}

/** Kinds whose deletion is answered with the object, also when it is gone. */
const RETURNED = new Set(['/pods', '/services', '/serviceaccounts', '/persistentvolumeclaims']);

/**
 * The answer to a DELETE that removed its object: a Status, or the object as it last was where a finalizer or a grace
 * period of the real server would still have held it at the time of the answer.
 */
export function deletedAnswer(resource: Resource, last: JsonObject, options: DeleteOptions, now: Date): JsonObject {
  const definition = resource.storage === 'apiextensions.k8s.io/customresourcedefinitions';
  const held =
    options.propagationPolicy === 'Orphan'
      ? ORPHAN
      : options.propagationPolicy === 'Foreground'
        ? FOREGROUND
        : undefined;
  if (held === undefined && !definition && !RETURNED.has(resource.storage)) return deletedStatus(resource, last);
  const metadata: JsonObject = object(last, 'metadata');
  if (options.dryRun === true || (RETURNED.has(resource.storage) && resource.storage !== '/pods')) return last;
  return {
    ...last,
    metadata: {
      ...metadata,
      deletionTimestamp: metadata.deletionTimestamp ?? timestamp(now),
      deletionGracePeriodSeconds: 0,
      ...(held === undefined ? {} : { finalizers: [held] }),
    },
  };
}

function deletedStatus(resource: Resource, last: JsonObject): JsonObject {
  return {
    kind: 'Status',
    apiVersion: 'v1',
    metadata: {},
    status: 'Success',
    details: {
      name: text(last, 'metadata', 'name'),
      ...(resource.group === '' ? {} : { group: resource.group }),
      kind: resource.plural,
      uid: text(last, 'metadata', 'uid'),
    },
  };
}
