/** Creating, updating and patching: one path from a body to a stored object, whatever the verb. */
import { randomUUID } from 'node:crypto';
import { serverSideApply } from './apply.ts';
import type { Decoded, Decoder, FieldValidation } from './decode.ts';
import {
  alreadyExists,
  badRequest,
  cause,
  conflict,
  forbidden,
  invalid,
  notFound,
  STALE,
  StatusError,
} from './errors.ts';
import { at, equal, isObject, type Json, type JsonObject, list, object, text } from './json.ts';
import { type Manager, recordUpdate } from './managed-fields.ts';
import { metadataRules, nameSuffix, timestamp } from './object-meta.ts';
import { applyPatch } from './patch.ts';
import type { Reads } from './reads.ts';
import { apiVersionOf, type Resource } from './registry.ts';
import { applyDefaults } from './schema.ts';
import type { Store } from './store.ts';
import type { PatchType } from './types.ts';

export interface WriteContext {
  readonly fieldManager: string;
  readonly dryRun: boolean;
  readonly fieldValidation: FieldValidation;
  /** Empty, or `status`. */
  readonly subresource: string;
  readonly force: boolean;
  /** Filled with texts for Warning headers. */
  readonly warnings: string[];
}

export interface Written {
  readonly object: JsonObject;
  readonly created: boolean;
}

/** Called when an update removed the last finalizer of an object being deleted. */
export type Finalize = (resource: Resource, object: JsonObject) => void;

const SERVER_OWNED = [
  'uid',
  'creationTimestamp',
  'generation',
  'deletionTimestamp',
  'deletionGracePeriodSeconds',
  'selfLink',
];

/** Kinds whose status endpoint writes labels and annotations too. */
const LABELLED_BY_STATUS = new Set(['/pods', '/nodes']);

export class Writes {
  readonly #store: Store;
  readonly #reads: Reads;
  readonly #decoder: Decoder;
  readonly #now: () => Date;
  readonly #finalize: Finalize;

  constructor(store: Store, reads: Reads, decoder: Decoder, now: () => Date, finalize: Finalize) {
    this.#store = store;
    this.#reads = reads;
    this.#decoder = decoder;
    this.#now = now;
    this.#finalize = finalize;
  }

  create(resource: Resource, namespace: string, body: unknown, context: WriteContext, name = ''): Written {
    const { object: next, warnings } = this.#decoder.decode(resource, body, context.fieldValidation);
    context.warnings.push(...warnings);
    if (name !== '') object(next, 'metadata').name = text(next, 'metadata', 'name') || name;
    return this.#create(resource, namespace, next, context, undefined);
  }

  update(resource: Resource, namespace: string, name: string, body: unknown, context: WriteContext): Written {
    const { object: next, warnings } = this.#decoder.decode(resource, body, context.fieldValidation);
    context.warnings.push(...warnings);
    const given = text(next, 'metadata', 'name');
    if (given !== name) {
      throw badRequest(`the name of the object (${given}) does not match the name on the URL (${name})`);
    }
    const live = this.#reads.stored(resource, namespace, name);
    if (resource.conditionalUpdates && text(next, 'metadata', 'resourceVersion') === '')
      throw noRevision(resource, name);
    return this.#update(resource, namespace, live, next, context, undefined);
  }

  patch(
    resource: Resource,
    namespace: string,
    name: string,
    type: PatchType,
    body: Json,
    context: WriteContext,
  ): Written {
    const stored = this.#store.get(resource.storage, namespace, name);
    if (type === 'apply') return this.#apply(resource, namespace, name, stored, body, context);
    if (stored === undefined) throw notFound(resource, name);
    const live = this.#reads.served(resource, stored);
    const patched = applyPatch(resource, live, type, body);
    const { object: next, warnings } = this.#decodePatched(resource, patched, context.fieldValidation);
    context.warnings.push(...warnings);
    const given = text(next, 'metadata', 'name');
    if (given !== name)
      throw badRequest(`the name of the object (${given}) does not match the name on the URL (${name})`);
    const uid = text(next, 'metadata', 'uid');
    if (uid !== '' && uid !== text(live, 'metadata', 'uid'))
      throw invalid(resource, name, [cause.invalid('metadata.uid', uid, 'field is immutable')]);
    return this.#update(resource, namespace, stored, next, context, undefined);
  }

  /** What a patch made unreadable is the patch's fault: 422, not 400. */
  #decodePatched(resource: Resource, patched: JsonObject, mode: FieldValidation): Decoded {
    const { object, unknown, warnings } = this.#decoder.decode(resource, patched, mode === 'Strict' ? 'Warn' : mode);
    if (mode !== 'Strict' || unknown.length === 0) return { object, unknown, warnings };
    const shown = JSON.stringify(JSON.stringify(patched));
    const message = `Invalid value: ${shown}: strict decoding error: ${unknown.join(', ')}`;
    throw invalid({ group: '', plural: '', kind: '' }, '', [{ reason: 'FieldValueInvalid', message, field: 'patch' }]);
  }

  /** Sets a pod's node. @throws StatusError Conflict when it has one already. */
  bind(resource: Resource, pod: JsonObject, bound: string, node: string, context: WriteContext): void {
    const name = text(pod, 'metadata', 'name');
    if (bound !== '')
      throw conflict(
        { ...resource, plural: 'pods/binding' },
        name,
        `pod ${name} is already assigned to node ${JSON.stringify(bound)}`,
      );
    const condition = {
      type: 'PodScheduled',
      status: 'True',
      lastProbeTime: null,
      lastTransitionTime: timestamp(this.#now()),
    };
    const others = list(pod, 'status', 'conditions').filter((entry) => text(entry, 'type') !== 'PodScheduled');
    const next: JsonObject = {
      ...pod,
      spec: { ...object(pod, 'spec'), nodeName: node },
      status: { ...object(pod, 'status'), conditions: [...others, condition] },
    };
    this.#save(resource, this.#recorded(resource, pod, next, context), context.dryRun);
  }

  #apply(
    resource: Resource,
    namespace: string,
    name: string,
    stored: JsonObject | undefined,
    body: Json,
    context: WriteContext,
  ): Written {
    for (const field of ['apiVersion', 'kind']) {
      if (text(body, field) === '')
        throw badRequest(`invalid object type: apiVersion and kind are required: ${field} is missing`);
    }
    const { object: config, unknown } = this.#decoder.decode(resource, body, 'Ignore');
    // Apply must know the type of every field that it tracks, whatever fieldValidation says.
    if (unknown.length > 0) {
      const what = `/${name}; ${apiVersionOf(resource).includes('/') ? '' : '/'}${apiVersionOf(resource)}, Kind=${resource.kind}`;
      const field = /"(.*)"/.exec(unknown[0] ?? '')?.[1] ?? '';
      throw new StatusError(
        500,
        '',
        `failed to create typed patch object (${what}): .${field}: field not declared in schema`,
      );
    }
    const metadata = object(config, 'metadata');
    if (list(metadata, 'managedFields').length > 0) {
      throw badRequest('metadata.managedFields must be nil');
    }
    const given = text(metadata, 'name');
    if (given !== '' && given !== name) {
      throw badRequest(`the name of the object (${given}) does not match the name on the URL (${name})`);
    }
    metadata.name = name;
    if (context.subresource === 'status' && stored === undefined) throw notFound(resource, name);
    if (stored === undefined) delete metadata.resourceVersion;
    const manager: Manager = { name: context.fieldManager, operation: 'Apply', subresource: context.subresource };
    const live = stored === undefined ? undefined : this.#reads.served(resource, stored);
    const applied = this.#onlyPart(resource, config, context.subresource);
    const next = serverSideApply(resource, live, applied, manager, context.force, timestamp(this.#now()));
    if (stored === undefined) return this.#create(resource, namespace, next, context, manager);
    return this.#update(resource, namespace, stored, next, context, manager);
  }

  /** What this endpoint writes of an applied configuration: all but status, or status alone. */
  #onlyPart(resource: Resource, config: JsonObject, subresource: string): JsonObject {
    if (subresource === 'status') {
      const { name = '', resourceVersion, uid, labels, annotations } = object(config, 'metadata');
      const shared = LABELLED_BY_STATUS.has(resource.storage);
      const metadata: JsonObject = {
        name,
        ...(resourceVersion === undefined ? {} : { resourceVersion }),
        ...(uid === undefined ? {} : { uid }),
        ...(shared && labels !== undefined ? { labels } : {}),
        ...(shared && annotations !== undefined ? { annotations } : {}),
      };
      return { apiVersion: apiVersionOf(resource), kind: resource.kind, metadata, status: config.status ?? {} };
    }
    if (!resource.statusSubresource) return config;
    const { status: _status, ...rest } = config;
    return rest;
  }

  #create(
    resource: Resource,
    namespace: string,
    body: JsonObject,
    context: WriteContext,
    applier: Manager | undefined,
  ): Written {
    const metadata: JsonObject = { ...object(body, 'metadata') };
    this.#checkNamespace(resource, namespace, metadata);
    if (text(metadata, 'resourceVersion') !== '' && applier === undefined) {
      throw new StatusError(500, '', 'resourceVersion should not be set on objects to be created');
    }
    const prefix = text(metadata, 'generateName');
    if (text(metadata, 'name') === '' && prefix !== '') metadata.name = prefix + nameSuffix();
    const name = text(metadata, 'name');
    for (const field of [...SERVER_OWNED, 'resourceVersion']) {
      // Kinds without generations keep the number that they are given.
      if (field !== 'generation' || resource.hasGeneration) delete metadata[field];
    }
    metadata.uid = randomUUID();
    metadata.creationTimestamp = timestamp(this.#now());
    if (resource.hasGeneration) metadata.generation = 1;
    if (applier === undefined) delete metadata.managedFields;
    let next: JsonObject = { ...body, metadata };
    if (resource.statusSubresource) delete next.status;
    // The writer owns what it gave and its defaults, not what the server adds after that.
    const own = (given: JsonObject): JsonObject =>
      applier === undefined ? this.#recorded(resource, undefined, given, context) : given;
    next = this.#complete(resource, next, undefined, context, own);
    if (this.#store.get(resource.storage, namespace, name) !== undefined) throw alreadyExists(resource, name);
    return { object: this.#save(resource, next, context.dryRun), created: true };
  }

  #update(
    resource: Resource,
    namespace: string,
    stored: JsonObject,
    body: JsonObject,
    context: WriteContext,
    applier: Manager | undefined,
  ): Written {
    const live = this.#reads.served(resource, stored);
    const name = text(live, 'metadata', 'name');
    const metadata: JsonObject = { ...object(body, 'metadata') };
    const old = object(live, 'metadata');
    const expected = text(metadata, 'resourceVersion');
    const uid = text(metadata, 'uid');
    if (uid !== '' && uid !== old.uid) {
      throw conflict(
        resource,
        name,
        `Precondition failed: UID in precondition: ${uid}, UID in object meta: ${text(old, 'uid')}`,
      );
    }
    if (expected !== '' && expected !== '0' && expected !== old.resourceVersion) throw conflict(resource, name, STALE);
    if (text(metadata, 'namespace') === '') metadata.namespace = namespace;
    if (text(metadata, 'namespace') !== namespace) {
      throw badRequest('the namespace of the provided object does not match the namespace sent on the request');
    }
    if (namespace === '') delete metadata.namespace;
    for (const field of [...SERVER_OWNED, 'resourceVersion']) {
      const value = old[field];
      if (value === undefined) delete metadata[field];
      else metadata[field] = value;
    }
    let next = this.#mergeParts(resource, live, { ...body, metadata }, context.subresource);
    next = this.#complete(resource, next, live, context);
    if (resource.hasGeneration && !equal(specOf(resource, live), specOf(resource, next))) {
      next = { ...next, metadata: { ...object(next, 'metadata'), generation: Number(old.generation ?? 0) + 1 } };
    }
    if (applier === undefined) next = this.#recorded(resource, live, next, context);
    if (equal(live, next)) return { object: live, created: false };
    const deleting = text(old, 'deletionTimestamp') !== '';
    if (deleting) this.#checkFinalizers(resource, live, next);
    const saved = this.#save(resource, next, context.dryRun);
    const done = list(next, 'metadata', 'finalizers').length === 0 && old.deletionGracePeriodSeconds === 0;
    if (deleting && done && !context.dryRun) this.#finalize(resource, saved);
    return { object: saved, created: false };
  }

  /** The main endpoint keeps the stored status; the status endpoint keeps everything else. */
  #mergeParts(resource: Resource, live: JsonObject, next: JsonObject, subresource: string): JsonObject {
    if (subresource === 'status') {
      const managed = object(next, 'metadata').managedFields;
      const shared = LABELLED_BY_STATUS.has(resource.storage) ? object(next, 'metadata') : object(live, 'metadata');
      const metadata = { ...shared, ...(managed === undefined ? {} : { managedFields: managed }) };
      const { status: _old, ...rest } = live;
      return { ...rest, metadata, ...(next.status === undefined ? {} : { status: next.status }) };
    }
    if (!resource.statusSubresource) return next;
    const { status: _ignored, ...rest } = next;
    return live.status === undefined ? rest : { ...rest, status: live.status };
  }

  #complete(
    resource: Resource,
    value: JsonObject,
    previous: JsonObject | undefined,
    context: WriteContext,
    own: (defaulted: JsonObject) => JsonObject = (defaulted) => defaulted,
  ): JsonObject {
    let native = structuredClone(resource.toStored?.(value) ?? value);
    applyDefaults(resource.schema, resource.toStored === undefined ? native : {}, resource.resolve);
    resource.strategy.defaults?.(native);
    const owned = own(resource.fromStored?.(native) ?? native);
    native = structuredClone(resource.toStored?.(owned) ?? owned);
    const before = previous === undefined ? undefined : (resource.toStored?.(previous) ?? previous);
    if (before === undefined) resource.strategy.prepareCreate?.(native);
    else resource.strategy.prepareUpdate?.(native, before);
    const next = resource.fromStored?.(native) ?? native;
    const name = text(next, 'metadata', 'name');
    const causes = metadataRules(resource, next);
    if (causes.length > 0) throw invalid(resource, name, causes);
    this.#decoder.checkSchema(resource, next);
    const broken = resource.strategy.validate?.(native, before) ?? [];
    if (broken.length > 0) throw invalid(resource, name, broken);
    context.warnings.push(...(resource.strategy.warnings?.(native) ?? []));
    return next;
  }

  #recorded(resource: Resource, live: JsonObject | undefined, next: JsonObject, context: WriteContext): JsonObject {
    const manager: Manager = { name: context.fieldManager, operation: 'Update', subresource: context.subresource };
    return recordUpdate(resource, live, next, manager, timestamp(this.#now()));
  }

  #save(resource: Resource, next: JsonObject, dryRun: boolean): JsonObject {
    if (dryRun) return next;
    const stored = resource.toStored?.(next) ?? { ...next, apiVersion: resource.storageVersion };
    return this.#reads.served(resource, this.#store.put(resource.storage, stored));
  }

  #checkNamespace(resource: Resource, namespace: string, metadata: JsonObject): void {
    if (!resource.namespaced) {
      delete metadata.namespace;
      return;
    }
    const given = text(metadata, 'namespace');
    if (given !== '' && given !== namespace) {
      throw badRequest('the namespace of the provided object does not match the namespace sent on the request');
    }
    metadata.namespace = namespace;
    const found = this.#store.get('/namespaces', '', namespace);
    if (found === undefined) throw notFound({ group: '', plural: 'namespaces', kind: 'Namespace' }, namespace);
    if (text(found, 'status', 'phase') === 'Terminating') {
      const why = `unable to create new content in namespace ${namespace} because it is being terminated`;
      const causes = [
        {
          reason: 'NamespaceTerminating',
          message: `namespace ${namespace} is being terminated`,
          field: 'metadata.namespace',
        },
      ];
      throw forbidden(resource, text(metadata, 'name'), why, causes);
    }
  }

  #checkFinalizers(resource: Resource, live: JsonObject, next: JsonObject): void {
    const before = list(live, 'metadata', 'finalizers');
    const added = list(next, 'metadata', 'finalizers').filter((name) => !before.includes(name));
    if (added.length === 0) return;
    throw invalid(resource, text(live, 'metadata', 'name'), [
      cause.forbidden(
        'metadata.finalizers',
        `no new finalizers can be added if the object is being deleted, found new finalizers []string{${added.map((name) => JSON.stringify(name)).join(', ')}}`,
      ),
    ]);
  }
}

/** The real server names the resource, not the kind, where an update must say what it started from. */
function noRevision(resource: Resource, name: string): StatusError {
  const { plural, group } = resource;
  const why = cause.invalid('metadata.resourceVersion', 0, 'must be specified for an update');
  return invalid({ group, plural, kind: plural }, name, [why]);
}

/** What counts for metadata.generation. */
function specOf(resource: Resource, value: JsonObject): JsonObject {
  const { apiVersion: _a, kind: _k, metadata: _m, status, ...rest } = value;
  return resource.statusSubresource || status === undefined || !isObject(at(value)) ? rest : { ...rest, status };
}
