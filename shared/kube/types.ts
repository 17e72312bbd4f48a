/** The contract of the client and the reflector. Only this folder talks to the API server. */

import type { BackoffOptions } from '@weir/reconciler/backoff';
import type { KubeObject } from './kubernetes-objects.ts';
import type { ServerPulse } from './pulse.ts';

/** A kind that can be requested: where it is served. */
export interface Resource<T extends KubeObject> {
  readonly group: string;
  readonly version: string;
  readonly kind: string;
  readonly plural: string;
  readonly namespaced: boolean;
  /** Never set; carries the type. */
  readonly _type?: T;
}

export interface ListOptions {
  readonly namespace?: string;
  readonly labelSelector?: string;
  readonly fieldSelector?: string;
  readonly signal?: AbortSignal;
}

/** Requests. Every failure is an `ApiError` with status, reason, message, retryAfterMs. */
export interface KubeClient {
  get<T extends KubeObject>(resource: Resource<T>, name: string, namespace?: string, signal?: AbortSignal): Promise<T>;
  list<T extends KubeObject>(
    resource: Resource<T>,
    options?: ListOptions,
  ): Promise<{ readonly items: readonly T[]; readonly resourceVersion: string }>;
  create<T extends KubeObject>(resource: Resource<T>, object: T): Promise<T>;
  /** With `subresource: 'status'` the status alone; what others had put there goes. Conflicts when `object` is not the newest. */
  replace<T extends KubeObject>(
    resource: Resource<T>,
    object: T,
    options?: { readonly subresource?: 'status' },
  ): Promise<T>;
  /** Server-side apply. `subresource: 'status'` applies the status. */
  apply<T extends KubeObject>(
    resource: Resource<T>,
    object: T,
    options: { readonly fieldManager: string; readonly force?: boolean; readonly subresource?: 'status' },
  ): Promise<T>;
  delete<T extends KubeObject>(
    resource: Resource<T>,
    name: string,
    namespace?: string,
    options?: { readonly uid?: string; readonly resourceVersion?: string; readonly gracePeriodSeconds?: number },
  ): Promise<void>;
  /** One page of a list. `continueToken` absent: the last page. */
  listPage<T extends KubeObject>(
    resource: Resource<T>,
    options: ListOptions & { readonly limit: number; readonly continueToken?: string },
  ): Promise<ListPage<T>>;
  /**
   * Changes after `resourceVersion`, with bookmarks. Calls `accepted` when the server has accepted the watch. Ends when the
   * server closes the stream or `signal` aborts; throws an ApiError (`gone` when the version is too old). Leaving the iteration
   * closes the connection.
   */
  watch<T extends KubeObject>(
    resource: Resource<T>,
    options: ListOptions & { readonly resourceVersion: string; readonly accepted?: () => void },
  ): AsyncIterable<WatchEvent<T>>;
  /** Closes idle connections. Requests made afterwards still work. */
  close(): void;
  /** Tells when the server answers again. Absent: nobody is woken early. */
  readonly pulse?: Pick<ServerPulse, 'recoveries'>;
}

/** Says whether something may still be written. */
export interface WriteFence {
  /** Aborted when it may not any more: ends the writes under way, which then throw its reason. */
  readonly signal: AbortSignal;
  /** Throws when it may not. Called right before a write is sent. */
  readonly check: () => void;
}

/** A client some of whose users may lose the right to write, or have less time than others. */
export interface FencingClient {
  /** The same connections, for one who writes only as long as `fence` lets it. Reads are not held. */
  fenced(fence: WriteFence): KubeClient;
  /** The same connections, with `timeoutMs` milliseconds for each request. */
  within(timeoutMs: number): KubeClient & KubeReviewer;
}

/** Questions that the API server answers and does not keep. */
export interface KubeReviewer {
  /** Whose token it is, or what somebody may: the `status` of the answer to an object with this `spec`. */
  review(kind: 'TokenReview' | 'SubjectAccessReview', spec: object): Promise<unknown>;
}

export interface ListPage<T extends KubeObject> {
  readonly items: readonly T[];
  readonly resourceVersion: string;
  readonly continueToken?: string;
}

/** `BOOKMARK` carries only a resourceVersion. */
export interface WatchEvent<T extends KubeObject> {
  readonly type: 'ADDED' | 'MODIFIED' | 'DELETED' | 'BOOKMARK';
  readonly object: T;
}

/** Where a reflector puts what it sees; called synchronously, in order. A throw is isolated and reported, and the list is repeated. */
export interface ReflectorSink<T extends KubeObject> {
  /** The complete state (first list, or a relist after a gap): the sink diffs. */
  replace(items: readonly T[], resourceVersion: string): void;
  upsert(item: T): void;
  delete(item: T): void;
  /** First complete list delivered. */
  synced?(): void;
}

export interface ReflectorOptions<T extends KubeObject> {
  readonly client: KubeClient;
  readonly resource: Resource<T>;
  readonly sink: ReflectorSink<T>;
  readonly list?: Omit<ListOptions, 'signal'>;
  /** Objects of one page of a list, which is in memory as a whole. Default: 500. */
  readonly pageSize?: number;
  /** Reduces an object to what is kept in memory. Default: takes away its managed fields. */
  readonly trim?: (object: T) => T;
  readonly onError?: (error: Error, context: { readonly resource: string; readonly retryInMs: number }) => void;
  /** Called after each list, after each event of a watch (bookmarks too), and when a watch without any has lasted for a second. Must not throw. */
  readonly onFollowing?: () => void;
  /** Watch is renewed when nothing (not even a bookmark) arrived for this long. Default 90_000 ms. */
  readonly idleTimeoutMs?: number;
  /** Waits after failures; a recovery of the server ends them. Default 200 ms to 5 s. */
  readonly backoff?: BackoffOptions;
}

export interface Reflector {
  start(): void;
  stop(): Promise<void>;
  readonly synced: boolean;
  /** Since when the sink may not have what the API server has, in milliseconds of `performance.now()`; undefined: it follows. */
  readonly staleSince: number | undefined;
}
