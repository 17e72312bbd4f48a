/** One watch: initial events, replay from history, live events, bookmarks, and its end. */
import { expired, tooLargeRevision } from './errors.ts';
import type { JsonObject } from './json.ts';
import type { Reads } from './reads.ts';
import { apiVersionOf, type Resource } from './registry.ts';
import { predicate } from './selectors.ts';
import type { Change, Store } from './store.ts';

export interface WatchOptions {
  readonly namespace: string;
  readonly labelSelector: string;
  readonly fieldSelector: string;
  /** Empty: the current objects first, then changes. `0`: the same. Otherwise changes after this revision. */
  readonly resourceVersion: string;
  readonly allowBookmarks: boolean;
  readonly sendInitialEvents: boolean | undefined;
}

export interface WatchEvent {
  readonly type: 'ADDED' | 'MODIFIED' | 'DELETED' | 'BOOKMARK' | 'ERROR';
  readonly object: JsonObject;
}

export type Emit = (event: WatchEvent) => void;

/** How often an idle watch that allows bookmarks learns the current resourceVersion, in milliseconds. */
export const BOOKMARK_INTERVAL = 30_000;

export class Watch {
  readonly #store: Store;
  readonly #reads: Reads;
  readonly #resource: Resource;
  readonly #options: WatchOptions;
  readonly #emit: Emit;
  #lastSent: number;
  #unsubscribe: (() => void) | undefined;

  constructor(store: Store, reads: Reads, resource: Resource, options: WatchOptions, emit: Emit) {
    this.#store = store;
    this.#reads = reads;
    this.#resource = resource;
    this.#options = options;
    this.#emit = emit;
    this.#lastSent = store.revision;
  }

  /**
   * Emits what is due and stays subscribed until stop().
   * @returns false when the watch is over at once: its revision was forgotten and an ERROR event told so.
   * @throws StatusError for options that do not fit together and for revisions of the future.
   */
  start(): boolean {
    const { resourceVersion, sendInitialEvents, allowBookmarks } = this.#options;
    const selects = predicate(this.#options.labelSelector, this.#options.fieldSelector, this.#resource);
    const namespace = this.#options.namespace;
    const inScope = (object: JsonObject): boolean =>
      (namespace === '' || (object.metadata as JsonObject).namespace === namespace) && (selects?.(object) ?? true);
    const from = Number(resourceVersion === '' ? '0' : resourceVersion);
    if (from > this.#store.revision) throw tooLargeRevision(from, this.#store.revision);
    const initial = sendInitialEvents ?? from === 0;
    let replay: Change[] | undefined = [];
    if (!initial && from !== 0) replay = this.#store.since(this.#resource.storage, from);
    if (replay === undefined) {
      const why = `too old resource version: ${from} (${this.#store.oldestRevision})`;
      this.#emit({ type: 'ERROR', object: expired(why).toStatus() });
      return false;
    }
    if (initial) {
      for (const object of this.#store.list(this.#resource.storage, namespace)) {
        if (inScope(object)) this.#emit({ type: 'ADDED', object: this.#reads.served(this.#resource, object) });
      }
    }
    for (const change of replay) this.#deliver(change, inScope);
    this.#lastSent = this.#store.revision;
    if (sendInitialEvents === true && allowBookmarks)
      this.#bookmark({ annotations: { 'k8s.io/initial-events-end': 'true' } });
    this.#unsubscribe = this.#store.subscribe(this.#resource.storage, (change) => this.#deliver(change, inScope));
    return true;
  }

  /** Tells the current revision if it moved since the last event or bookmark. */
  bookmarkIfMoved(): void {
    if (this.#options.allowBookmarks && this.#store.revision > this.#lastSent) this.#bookmark({});
  }

  stop(): void {
    this.#unsubscribe?.();
    this.#unsubscribe = undefined;
  }

  #bookmark(extra: JsonObject): void {
    this.#lastSent = this.#store.revision;
    const metadata: JsonObject = { resourceVersion: String(this.#store.revision), ...extra };
    this.#emit({
      type: 'BOOKMARK',
      object: { kind: this.#resource.kind, apiVersion: apiVersionOf(this.#resource), metadata },
    });
  }

  /** An object that starts or stops matching the selectors appears or disappears. */
  #deliver(change: Change, inScope: (object: JsonObject) => boolean): void {
    const before = change.previous !== undefined && inScope(change.previous);
    const after = change.type !== 'DELETED' && inScope(change.object);
    if (!before && !after) return;
    this.#lastSent = change.revision;
    const type = before ? (after ? 'MODIFIED' : 'DELETED') : 'ADDED';
    const leaves = before && !after && change.type !== 'DELETED';
    this.#emit({ type, object: this.#reads.served(this.#resource, leaves ? lastMatching(change) : change.object) });
  }
}

/** What leaves a selection is shown as it last matched, under the revision at which it left. */
function lastMatching({ object, previous = object }: Change): JsonObject {
  const [was, is] = [previous.metadata as JsonObject, object.metadata as JsonObject];
  return { ...previous, metadata: { ...was, resourceVersion: is.resourceVersion ?? '' } };
}
