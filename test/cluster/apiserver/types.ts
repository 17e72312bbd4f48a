/**
 * An in-process Kubernetes API server for demos, development and fault injection.
 *
 * Guarantees:
 * - one global resourceVersion counter: every write that changes an object takes the next value, a write that changes
 *   nothing takes none and wakes no watcher;
 * - a watch opened at a resourceVersion sees every later change of its objects once, in order, or gets 410 Expired;
 * - stored objects are immutable: what `client` returns must not be mutated (copy it first);
 * - the HTTP face and `client` run the same code, validation included.
 *
 * - validating webhooks are called; other kinds of admission are not known here.
 *
 * No controllers run here and no kubelet answers: workloads are stored only, and `kubectl logs`, `exec`, `attach` and
 * `port-forward` are refused with 501 and the reason.
 *
 * There is no authentication and no TLS: whoever reaches the socket is administrator. Listen on loopback only.
 */
import type { Socket } from 'node:net';
import type { JsonObject } from './json.ts';

export interface ApiServerOptions {
  /** CustomResourceDefinition objects (apiextensions.k8s.io/v1) created before the server answers its first request. */
  readonly crds?: readonly object[];
  /** Cluster and context name in the kubeconfig. Default `weir`. */
  readonly clusterName?: string;
  /** Changes kept for watches to resume from, over all resources. Default 10000. */
  readonly watchHistory?: number;
  /** Clock for timestamps in objects. Default the wall clock. */
  readonly now?: () => Date;
  /** Where webhooks that name a Service are called. Default: nowhere. */
  readonly serviceAddress?: ServiceAddress;
}

/** Who answers for a port of a Service; undefined: nobody. */
export type ServiceAddress = (service: {
  readonly namespace: string;
  readonly name: string;
  readonly port: number;
}) => { readonly host: string; readonly port: number } | undefined;

/** What a client addresses: a resource (group, version, plural) and, except for collections, one object of it. */
export interface ResourceRef {
  /** API group; empty for the core group. */
  readonly group: string;
  readonly version: string;
  readonly plural: string;
  /** Required for objects of namespaced resources; a list without it spans all namespaces. */
  readonly namespace?: string;
}

export interface ObjectRef extends ResourceRef {
  readonly name: string;
}

export interface WriteOptions {
  /** Recorded in managedFields. Default `in-process`. */
  readonly fieldManager?: string;
  readonly dryRun?: boolean;
  /** What to do about unknown and duplicate fields. Default `Warn`. */
  readonly fieldValidation?: 'Strict' | 'Warn' | 'Ignore';
  /** `status` (any kind with a status) or `binding` (pods). */
  readonly subresource?: string;
}

export interface ListOptions {
  readonly labelSelector?: string;
  readonly fieldSelector?: string;
  readonly limit?: number;
  readonly continue?: string;
}

export type PatchType = 'json' | 'merge' | 'strategic' | 'apply';

export interface PatchOptions extends WriteOptions {
  /** Server-side apply only: take over fields that others own. */
  readonly force?: boolean;
}

export interface DeleteOptions {
  readonly gracePeriodSeconds?: number;
  readonly propagationPolicy?: 'Background' | 'Foreground' | 'Orphan';
  readonly preconditions?: { readonly uid?: string; readonly resourceVersion?: string };
  readonly dryRun?: boolean;
}

/** Every method rejects with a StatusError carrying the same Status body as the HTTP answer. */
export interface ApiClient {
  get(ref: ObjectRef): Promise<JsonObject>;
  /** The list object: `items`, `metadata.resourceVersion`, `metadata.continue`. */
  list(ref: ResourceRef, options?: ListOptions): Promise<JsonObject>;
  create(ref: ResourceRef, object: object, options?: WriteOptions): Promise<JsonObject>;
  update(ref: ObjectRef, object: object, options?: WriteOptions): Promise<JsonObject>;
  patch(ref: ObjectRef, type: PatchType, body: unknown, options?: PatchOptions): Promise<JsonObject>;
  /** The object as it was left (deletionTimestamp set) or a Status when it is gone. */
  delete(ref: ObjectRef, options?: DeleteOptions): Promise<JsonObject>;
}

/** Which requests a fault or a count concerns: every given field must match; `*` or absent matches all. */
export interface RequestFilter {
  /** get, list, watch, create, update, patch, apply, delete, deletecollection. */
  readonly verb?: string;
  readonly group?: string;
  /** Plural, with `/status` for a subresource. */
  readonly resource?: string;
  readonly namespace?: string;
  readonly name?: string;
  readonly fieldManager?: string;
  /** Matches a prefix of the User-Agent header. */
  readonly userAgent?: string;
}

/** What clients have met, as far as it was injected. `answer lost`: the write was carried out. `watch expired`: 410, whoever forgot the history. */
export type FaultKind =
  | 'request failed'
  | 'request delayed'
  | 'answer lost'
  | 'watch cut'
  | 'watch torn'
  | 'event held'
  | 'watch expired';

export interface Faults {
  /** Cuts the connections of matching open watches, as a crashed server would; returns how many. */
  dropWatches(filter?: RequestFilter): number;
  /** The next event of each matching open watch arrives by half, and the connection is cut; returns how many watches. */
  tearWatches(filter?: RequestFilter): number;
  /** Matching watches stay open and say nothing until the returned function is called; then they say all of it, in order. */
  holdWatches(filter?: RequestFilter): () => void;
  /**
   * Carries out matching writes and answers them with HTTP status `how`, or cuts their connection, until the returned function is called:
   * the client cannot know.
   */
  loseAnswers(how: number | 'cut', filter?: RequestFilter): () => void;
  /** Delays matching requests by `ms` milliseconds until the returned function is called. */
  delay(ms: number, filter?: RequestFilter): () => void;
  /** Answers matching requests with HTTP `status`, `count` times (default: until the returned function is called). */
  fail(status: number, filter?: RequestFilter, count?: number): () => void;
  /** Forgets the watch history and paging snapshots: what resumes from an older resourceVersion gets 410 Expired. */
  expireWatches(): void;
  /** Ends all of these. */
  clear(): void;
  /** How often each has met a client. */
  readonly counts: Readonly<Record<FaultKind, number>>;
}

export interface RequestCount {
  readonly verb: string;
  readonly group: string;
  readonly resource: string;
  readonly fieldManager: string;
  readonly userAgent: string;
  readonly count: number;
}

export interface Stats {
  /** One row for each distinct (verb, resource, field manager, user agent) since start or reset. */
  requests(filter?: RequestFilter): readonly RequestCount[];
  /** Sum of the counts that match. */
  count(filter?: RequestFilter): number;
  /** Response body bytes written over HTTP, watches included. */
  readonly bytesWritten: number;
  /** Watches open now. */
  readonly openWatches: number;
  /** The newest resourceVersion: unchanged between two reads means nothing was written. */
  readonly resourceVersion: number;
  reset(): void;
}

export interface ApiServer {
  /**
   * Port 0 or absent picks a free one. `secret`: only requests whose path begins with it, as that of the URL does, are answered (kubectl sends
   * no token over plain HTTP). Rejects with ListenError naming the port when it is taken.
   */
  listen(port?: number, host?: string, secret?: string): Promise<{ port: number; url: string }>;
  /** Serves a connection accepted elsewhere, for instance by a listener in another network namespace. */
  handleSocket(socket: Socket): void;
  /** Ends watches, closes every connection and listener. Idempotent. */
  stop(): Promise<void>;
  /** A kubeconfig (YAML, plain HTTP) for `url`, by default that of the first listener. */
  kubeconfig(url?: string): string;
  readonly faults: Faults;
  readonly client: ApiClient;
  readonly stats: Stats;
}
