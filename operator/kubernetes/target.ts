/**
 * One kind of object that the operator writes: what the API server holds of it, a table, and writes that make it as desired.
 *
 * What is known comes from the watch and from the answers to our own writes; the newer resource version wins, so that a
 * late event of the past never hides a later write. A write that would change nothing is not made.
 */
import { isDeepStrictEqual } from 'node:util';
import {
  ApiError,
  type KubeClient,
  type KubeObject,
  type ReflectorSink,
  type Resource,
  withoutManagedFields,
} from '@weir/kube';
import { withoutDepths } from '@weir/process/depth';
import type { IndexSpec, Reader, StateDB, Table, WriteTxn } from '@weir/statedb';

export const FIELD_MANAGER = 'weir-operator';

export interface TargetOptions<T extends KubeObject> {
  readonly db: StateDB;
  readonly client: Pick<KubeClient, 'apply' | 'replace' | 'delete'>;
  readonly resource: Resource<T>;
  /** What says whether an object is as desired. */
  readonly content: (object: T) => unknown;
  readonly subresource?: 'status';
  /** What is kept of an object: at least its name, namespace and uid, and its content. Default: all of it. */
  readonly kept?: (object: T) => T;
  /** Whether the object is as we write them. One that is not counts as absent, and is overwritten, or removed. Default: it is. */
  readonly readable?: (object: T) => boolean;
  /** For `has`. */
  readonly indexes?: readonly IndexSpec<Stored<T>>[];
  /**
   * An apply leaves what others have put beside our fields. With this, such an object is replaced: by `wanted`'s content in
   * what the server answered.
   */
  readonly replacement?: (answer: T, wanted: T) => T;
  /** An object is not any more as it was last known, and not by our hand. */
  readonly onDrift?: (key: string) => void;
  readonly onWrite?: (verb: 'apply' | 'update' | 'delete', resource: string) => void;
}

/** An object as the API server holds it. */
export interface Stored<T> {
  readonly object: T;
  readonly version: bigint;
  /** Another hand has made something of it that is none of ours. */
  readonly unreadable?: true;
}

/** What was sent and may be what the API server holds, as no write after it was acknowledged. Of kinds that have indexes. */
interface Sent<T> {
  readonly key: string;
  /** As long as the server refuses, one for each content. */
  readonly objects: readonly T[];
}

interface Writing {
  readonly wanted: unknown;
  /** The version at which the object was seen to be gone: an answer to the write that is not newer says what was before. */
  goneAt?: bigint;
}

export class ObjectTarget<T extends KubeObject> implements ReflectorSink<T> {
  readonly #options: TargetOptions<T>;
  readonly #stored: Table<Stored<T>>;
  readonly #sent: Table<Sent<T>>;
  /** Writes under way: a watch event with this content is our own. */
  readonly #writing = new Map<string, Writing>();
  /** Keys of objects whose deletion is under way. */
  readonly #leaving = new Set<string>();

  /** Registers two tables: `stored` and the kind, `sent` and the kind. */
  constructor(options: TargetOptions<T>) {
    this.#options = options;
    const { db, resource, subresource } = options;
    const indexes = (options.indexes ?? []).map(({ keys, ...spec }) => ({
      ...spec,
      keys: (stored: Stored<T>) => (stored.unreadable === true ? [] : keys(stored)),
    }));
    const kind = `${resource.kind}${subresource === undefined ? '' : 'Status'}`;
    this.#stored = db.table({ name: `stored${kind}`, key: ({ object }) => objectKey(object), indexes });
    this.#sent = db.table({
      name: `sent${kind}`,
      key: ({ key }) => key,
      indexes: indexes.map(({ name, keys }) => ({
        name,
        keys: ({ objects }) => objects.flatMap((object) => [...keys({ object, version: 0n })]),
      })),
    });
  }

  get(key: string): T | undefined {
    const stored = this.#read((reader) => reader.get(this.#stored, key));
    return stored?.unreadable === true ? undefined : stored?.object;
  }

  /** Whether the API server holds the object, and nobody is deleting it here. */
  stays(key: string): boolean {
    return this.get(key) !== undefined && !this.#leaving.has(key);
  }

  /** In the order of their keys. */
  objects(): readonly T[] {
    return this.#read((reader) =>
      Array.from(reader.all(this.#stored)).flatMap(({ object, unreadable }) => (unreadable === true ? [] : [object])),
    );
  }

  /** Of those that are not as we write them, too. */
  keys(): readonly string[] {
    return this.#read((reader) => Array.from(reader.all(this.#stored), ({ object }) => objectKey(object)));
  }

  /** Whether an object has this key in an index; one too, that is being written, or whose write was not acknowledged. */
  has(index: string, key: string): boolean {
    return this.#read(
      (reader) =>
        reader.list(this.#stored, index, key).next().done === false ||
        reader.list(this.#sent, index, key).next().done === false,
    );
  }

  replace(items: readonly T[], resourceVersion: string): void {
    const listed = new Set(items.map(objectKey));
    const at = versionOf(resourceVersion);
    for (const [key, writing] of this.#writing) if (!listed.has(key)) writing.goneAt = at;
    this.#learn((txn) => {
      const gone = Array.from(txn.all(this.#stored)).filter(
        ({ object, version }) => version <= at && !listed.has(objectKey(object)),
      );
      for (const { object } of gone) txn.delete(this.#stored, objectKey(object));
      return [...gone.map(({ object }) => object), ...items.filter((item) => this.#take(txn, item))];
    });
  }

  upsert(item: T): void {
    this.#learn((txn) => (this.#take(txn, item) ? [item] : []));
  }

  delete(item: T): void {
    const key = objectKey(item);
    const at = versionOf(item.metadata.resourceVersion);
    const writing = this.#writing.get(key);
    if (writing !== undefined) writing.goneAt = at;
    this.#learn((txn) => {
      const before = txn.get(this.#stored, key);
      if (before === undefined || at < before.version) return [];
      txn.delete(this.#stored, key);
      return [item];
    });
  }

  /** Makes the object as given; makes no request, and says false, when it is. Throws ApiError. */
  async apply(object: T): Promise<boolean> {
    const key = objectKey(object);
    const { client, resource, content, subresource, replacement, onWrite } = this.#options;
    const before = this.get(key);
    const wanted = content(object);
    if (before !== undefined && isDeepStrictEqual(content(before), wanted)) {
      this.#acknowledged(key);
      return false;
    }
    this.#send(key, object);
    const writing: Writing = { wanted };
    this.#writing.set(key, writing);
    let answer: T;
    try {
      const part = subresource === undefined ? {} : { subresource };
      answer = withoutDepths(
        await client.apply(resource, object, { fieldManager: FIELD_MANAGER, force: true, ...part }),
      );
      onWrite?.('apply', resource.plural);
      if (replacement !== undefined && !isDeepStrictEqual(content(answer), wanted)) {
        answer = await client.replace(resource, replacement(answer, object), part);
        onWrite?.('update', resource.plural);
      }
    } finally {
      this.#writing.delete(key);
    }
    const version = versionOf(answer.metadata.resourceVersion);
    answer = this.#kept(withoutManagedFields(answer));
    this.#learn((txn) => {
      const meanwhile = txn.get(this.#stored, key);
      // Nobody else tells of it where it came and went between two lists.
      if (writing.goneAt !== undefined && version <= writing.goneAt) return [answer];
      if (meanwhile === undefined || meanwhile.version <= version)
        txn.upsert(this.#stored, { object: answer, version });
      return [];
    });
    this.#acknowledged(key);
    return true;
  }

  /** Removes the object; succeeds when it is absent. Throws ApiError. */
  async remove(key: string): Promise<void> {
    const stored = this.#read((reader) => reader.get(this.#stored, key));
    const object = stored?.object ?? this.#read((reader) => reader.get(this.#sent, key))?.objects.at(-1);
    if (object === undefined) return;
    const { client, resource, onWrite } = this.#options;
    const { name, namespace, uid } = object.metadata;
    this.#leaving.add(key);
    try {
      await client.delete(resource, name, namespace, uid === undefined ? {} : { uid });
      onWrite?.('delete', resource.plural);
    } catch (error) {
      if (!(error instanceof ApiError && error.notFound)) throw error;
    } finally {
      this.#leaving.delete(key);
    }
    this.#learn((txn) => {
      if (txn.get(this.#stored, key)?.object.metadata.uid === uid) txn.delete(this.#stored, key);
      return [];
    });
    this.#acknowledged(key);
  }

  #kept(object: T): T {
    const { kept } = this.#options;
    return kept === undefined ? object : kept(object);
  }

  #send(key: string, object: T): void {
    const { db, content, indexes = [] } = this.#options;
    if (indexes.length === 0) return;
    db.write([this.#sent], (txn) => {
      const objects = txn.get(this.#sent, key)?.objects ?? [];
      if (objects.some((each) => isDeepStrictEqual(content(each), content(object)))) return;
      txn.upsert(this.#sent, { key, objects: [...objects, object] });
    });
  }

  /** The API server holds what is known of the object. */
  #acknowledged(key: string): void {
    this.#options.db.write([this.#sent], (txn) => txn.delete(this.#sent, key));
  }

  /** Takes over an object unless it is old. Whether another hand has changed it. */
  #take(txn: WriteTxn, item: T): boolean {
    const key = objectKey(item);
    const version = versionOf(item.metadata.resourceVersion);
    const before = txn.get(this.#stored, key);
    if (before !== undefined && version <= before.version) return false;
    const { content, readable } = this.#options;
    if (readable?.(item) === false) {
      txn.upsert(this.#stored, { object: this.#kept(item), version, unreadable: true });
      return true;
    }
    txn.upsert(this.#stored, { object: this.#kept(item), version });
    const now = content(item);
    if (before !== undefined && before.unreadable !== true && isDeepStrictEqual(content(before.object), now))
      return false;
    const writing = this.#writing.get(key);
    return !(writing !== undefined && isDeepStrictEqual(writing.wanted, now));
  }

  /** Changes what is known; `change` returns what is not any more as it was, and not by our hand. */
  #learn(change: (txn: WriteTxn) => readonly T[]): void {
    const drifted = this.#options.db.write([this.#stored], change);
    // After the commit: the callback writes other tables.
    for (const object of drifted) this.#options.onDrift?.(objectKey(object));
  }

  #read<R>(answer: (reader: Reader) => R): R {
    using snapshot = this.#options.db.read();
    return answer(snapshot);
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
