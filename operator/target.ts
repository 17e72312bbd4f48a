/**
 * One kind of object that the operator writes: what the API server holds of it, and writes that make it as desired.
 *
 * What is known comes from the watch and from the answers to our own writes; the newer resource version wins, so that a
 * late event of the past never hides a later write. A write that would change nothing is not made.
 */
import { isDeepStrictEqual } from 'node:util';
import { ApiError, describe, type KubeClient, type KubeObject, type ReflectorSink, type Resource } from '@weir/kube';

export const FIELD_MANAGER = 'weir-operator';

export interface TargetOptions<T extends KubeObject> {
  readonly client: KubeClient;
  readonly resource: Resource<T>;
  /** What says whether an object is as desired. */
  readonly content: (object: T) => unknown;
  readonly subresource?: 'status';
  /**
   * An apply leaves what others have put beside our fields. With this, such an object is replaced: by `wanted`'s content in
   * what the server answered.
   */
  readonly replacement?: (answer: T, wanted: T) => T;
  /** An object is not any more as it was last known, and not by our hand. */
  readonly onDrift?: (key: string) => void;
  readonly onWrite?: (verb: 'apply' | 'update' | 'delete', resource: string) => void;
}

interface Known<T> {
  readonly object: T;
  readonly version: bigint;
}

export class ObjectTarget<T extends KubeObject> implements ReflectorSink<T> {
  readonly #options: TargetOptions<T>;
  readonly #known = new Map<string, Known<T>>();
  /** Content that is being written: its event may come before the answer, and is no other hand's. */
  readonly #writing = new Map<string, unknown>();
  #changes = 0;

  constructor(options: TargetOptions<T>) {
    this.#options = options;
  }

  /** Grows with every change of what is known. */
  get changes(): number {
    return this.#changes;
  }

  get(key: string): T | undefined {
    return this.#known.get(key)?.object;
  }

  *objects(): IterableIterator<T> {
    for (const { object } of this.#known.values()) yield object;
  }

  keys(): Iterable<string> {
    return this.#known.keys();
  }

  replace(items: readonly T[], resourceVersion: string): void {
    const listed = new Set(items.map(objectKey));
    const at = versionOf(resourceVersion);
    for (const [key, known] of [...this.#known]) {
      if (listed.has(key) || known.version > at) continue;
      this.#forget(key);
      this.#options.onDrift?.(key);
    }
    for (const item of items) this.upsert(item);
  }

  upsert(item: T): void {
    const key = objectKey(item);
    const version = versionOf(item.metadata.resourceVersion);
    const before = this.#known.get(key);
    if (before !== undefined && version <= before.version) return;
    this.#learn(key, { object: item, version });
    const { content, onDrift } = this.#options;
    const now = content(item);
    if (before !== undefined && isDeepStrictEqual(content(before.object), now)) return;
    if (this.#writing.has(key) && isDeepStrictEqual(this.#writing.get(key), now)) return;
    onDrift?.(key);
  }

  delete(item: T): void {
    const key = objectKey(item);
    const before = this.#known.get(key);
    if (before === undefined || versionOf(item.metadata.resourceVersion) < before.version) return;
    this.#forget(key);
    this.#options.onDrift?.(key);
  }

  /** Makes the object as given; makes no request, and says false, when it is. Throws ApiError. */
  async apply(object: T): Promise<boolean> {
    const key = objectKey(object);
    const { client, resource, content, subresource, replacement, onWrite } = this.#options;
    const before = this.#known.get(key);
    const wanted = content(object);
    if (before !== undefined && isDeepStrictEqual(content(before.object), wanted)) return false;
    this.#writing.set(key, wanted);
    let answer: T;
    try {
      const part = subresource === undefined ? {} : { subresource };
      answer = await client.apply(resource, object, { fieldManager: FIELD_MANAGER, force: true, ...part });
      onWrite?.('apply', resource.plural);
      if (replacement !== undefined && !isDeepStrictEqual(content(answer), wanted)) {
        answer = await client.replace(resource, replacement(answer, object), part);
        onWrite?.('update', resource.plural);
      }
    } finally {
      this.#writing.delete(key);
    }
    const version = versionOf(answer.metadata.resourceVersion);
    const meanwhile = this.#known.get(key);
    if (meanwhile === undefined || meanwhile.version <= version) this.#learn(key, { object: answer, version });
    return true;
  }

  /** Removes the object; succeeds when it is absent. Throws ApiError. */
  async remove(key: string): Promise<void> {
    const known = this.#known.get(key);
    if (known === undefined) return;
    const { client, resource, onWrite } = this.#options;
    const { name, namespace, uid } = known.object.metadata;
    try {
      await client.delete(resource, name, namespace, uid === undefined ? {} : { uid });
      onWrite?.('delete', resource.plural);
    } catch (error) {
      if (!(error instanceof ApiError && error.notFound)) throw error;
    }
    if (this.#known.get(key)?.object.metadata.uid === uid) this.#forget(key);
  }

  describe(key: string): string {
    return describe(this.#options.resource, key);
  }

  #learn(key: string, known: Known<T>): void {
    this.#known.set(key, known);
    this.#changes += 1;
  }

  #forget(key: string): void {
    this.#known.delete(key);
    this.#changes += 1;
  }
}

/** `namespace/name`, or the name of a cluster-scoped object. */
export function objectKey(object: KubeObject): string {
  const { namespace, name } = object.metadata;
  return namespace === undefined ? name : `${namespace}/${name}`;
}

/** Resource versions grow; one that is no number counts as the newest. */
function versionOf(resourceVersion: string | undefined): bigint {
  if (resourceVersion === undefined || !/^[0-9]{1,20}$/.test(resourceVersion)) return 1n << 64n;
  return BigInt(resourceVersion);
}
