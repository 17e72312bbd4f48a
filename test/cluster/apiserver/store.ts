/**
 * Objects and their history. Writes are synchronous: a reader never sees half a write. Stored objects are immutable.
 */
import { type JsonObject, list as listOf, text } from './json.ts';

export type ChangeType = 'ADDED' | 'MODIFIED' | 'DELETED';

export interface Change {
  readonly type: ChangeType;
  /** Storage key of the resource: `group/plural`. */
  readonly resource: string;
  readonly object: JsonObject;
  /** The object before the change; undefined for ADDED. */
  readonly previous: JsonObject | undefined;
  readonly revision: number;
}

export type Listener = (change: Change) => void;

export const objectKey = (namespace: string, name: string): string => `${namespace}/${name}`;

const keyOf = (object: JsonObject): string =>
  objectKey(text(object, 'metadata', 'namespace'), text(object, 'metadata', 'name'));

export class Store {
  readonly #objects = new Map<string, Map<string, JsonObject>>();
  readonly #listeners = new Map<string, Set<Listener>>();
  readonly #dependents = new Map<string, Map<string, { resource: string; key: string }>>();
  readonly #capacity: number;
  /** Changes made by listeners wait here, so that every listener sees all changes in order. */
  readonly #pending: Change[] = [];
  #publishing = false;
  #history: Change[] = [];
  #revision = 1;
  /** Changes at or below this revision may be gone from the history. */
  #forgotten = 1;

  constructor(historyCapacity: number) {
    this.#capacity = historyCapacity;
  }

  get revision(): number {
    return this.#revision;
  }

  get oldestRevision(): number {
    return this.#forgotten;
  }

  get(resource: string, namespace: string, name: string): JsonObject | undefined {
    return this.#objects.get(resource)?.get(objectKey(namespace, name));
  }

  /** All objects of a resource, or those of one namespace, sorted by namespace and name. */
  list(resource: string, namespace: string): JsonObject[] {
    const all = this.#objects.get(resource);
    if (all === undefined) return [];
    const prefix = `${namespace}/`;
    const keys = [...all.keys()];
    const wanted = namespace === '' ? keys : keys.filter((key) => key.startsWith(prefix));
    return wanted
      .sort()
      .map((key) => all.get(key))
      .filter((found) => found !== undefined);
  }

  /** As list(), of an earlier revision; undefined when the changes since then were forgotten. */
  listAt(resource: string, namespace: string, revision: number): JsonObject[] | undefined {
    const now = this.list(resource, namespace);
    if (revision >= this.#revision) return now;
    const changes = this.since(resource, revision);
    if (changes === undefined) return undefined;
    const then = new Map(now.map((object) => [keyOf(object), object]));
    for (const { object, previous, type } of changes.toReversed()) {
      if (namespace !== '' && text(object, 'metadata', 'namespace') !== namespace) continue;
      if (type === 'ADDED' || previous === undefined) then.delete(keyOf(object));
      else then.set(keyOf(previous), previous);
    }
    return [...then].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, object]) => object);
  }

  count(resource: string): number {
    return this.#objects.get(resource)?.size ?? 0;
  }

  resources(): string[] {
    return [...this.#objects.keys()];
  }

  /** Stores a new or changed object under the next revision, which it writes into a copy's metadata. */
  put(resource: string, object: JsonObject): JsonObject {
    const key = keyOf(object);
    const all = this.#table(resource);
    const previous = all.get(key);
    const stored = this.#stamped(object);
    all.set(key, stored);
    if (previous !== undefined) this.#unindex(previous, resource, key);
    this.#index(stored, resource, key);
    this.#publish({
      type: previous === undefined ? 'ADDED' : 'MODIFIED',
      resource,
      object: stored,
      previous,
      revision: this.#revision,
    });
    return stored;
  }

  /** Removes the object; watchers see `last` (its final state) under the next revision. */
  remove(resource: string, last: JsonObject): JsonObject {
    const key = keyOf(last);
    const previous = this.#objects.get(resource)?.get(key);
    this.#objects.get(resource)?.delete(key);
    if (previous !== undefined) this.#unindex(previous, resource, key);
    const object = this.#stamped(last);
    this.#publish({ type: 'DELETED', resource, object, previous: previous ?? last, revision: this.#revision });
    return object;
  }

  /** Objects that name `uid` among their owners. */
  dependents(uid: string): { resource: string; object: JsonObject }[] {
    const found: { resource: string; object: JsonObject }[] = [];
    for (const { resource, key } of this.#dependents.get(uid)?.values() ?? []) {
      const object = this.#objects.get(resource)?.get(key);
      if (object !== undefined) found.push({ resource, object });
    }
    return found;
  }

  /** The changes of a resource after `revision`, or undefined when some of them were forgotten. */
  since(resource: string, revision: number): Change[] | undefined {
    if (revision < this.#forgotten) return undefined;
    let low = 0;
    let high = this.#history.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if ((this.#history[middle]?.revision ?? 0) <= revision) low = middle + 1;
      else high = middle;
    }
    return this.#history.slice(low).filter((change) => change.resource === resource);
  }

  subscribe(resource: string, listener: Listener): () => void {
    let set = this.#listeners.get(resource);
    if (set === undefined) {
      set = new Set();
      this.#listeners.set(resource, set);
    }
    set.add(listener);
    return () => {
      set.delete(listener);
    };
  }

  /** Forgets the history up to now, as if the server had started at this revision. */
  begin(): void {
    this.#history = [];
    this.#forgotten = this.#revision;
  }

  /** Forgets the history: a watch from a revision older than now gets 410. Advances the revision so that "now" is new. */
  expire(): void {
    this.#revision += 1;
    this.#history = [];
    this.#forgotten = this.#revision;
  }

  #table(resource: string): Map<string, JsonObject> {
    let table = this.#objects.get(resource);
    if (table === undefined) {
      table = new Map();
      this.#objects.set(resource, table);
    }
    return table;
  }

  #stamped(object: JsonObject): JsonObject {
    this.#revision += 1;
    const metadata = object.metadata as JsonObject;
    return { ...object, metadata: { ...metadata, resourceVersion: String(this.#revision) } };
  }

  #publish(change: Change): void {
    this.#history.push(change);
    if (this.#history.length > this.#capacity * 1.25) {
      const dropped = this.#history.splice(0, this.#history.length - this.#capacity);
      this.#forgotten = dropped.at(-1)?.revision ?? this.#forgotten;
    }
    this.#pending.push(change);
    if (this.#publishing) return;
    this.#publishing = true;
    try {
      for (let next = this.#pending.shift(); next !== undefined; next = this.#pending.shift()) {
        for (const listener of Array.from(this.#listeners.get(next.resource) ?? [])) listener(next);
        for (const listener of Array.from(this.#listeners.get('*') ?? [])) listener(next);
      }
    } finally {
      this.#publishing = false;
    }
  }

  #index(object: JsonObject, resource: string, key: string): void {
    for (const owner of listOf(object, 'metadata', 'ownerReferences')) {
      const uid = text(owner, 'uid');
      let set = this.#dependents.get(uid);
      if (set === undefined) {
        set = new Map();
        this.#dependents.set(uid, set);
      }
      set.set(`${resource}/${key}`, { resource, key });
    }
  }

  #unindex(object: JsonObject, resource: string, key: string): void {
    for (const owner of listOf(object, 'metadata', 'ownerReferences')) {
      const uid = text(owner, 'uid');
      const set = this.#dependents.get(uid);
      set?.delete(`${resource}/${key}`);
      if (set?.size === 0) this.#dependents.delete(uid);
    }
  }
}
