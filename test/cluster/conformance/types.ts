/** What a case, a step and a transcript are. */
export type Json = null | boolean | number | string | Json[] | JsonObject;
export interface JsonObject {
  [key: string]: Json;
}

/** An API server under observation. */
export interface Target {
  readonly url: string;
  /** A kubeconfig file for kubectl and helm. */
  readonly kubeconfig: string;
  readonly ca?: string;
  readonly cert?: string;
  readonly key?: string;
}

/** One thing done and what was seen of it, in a form that does not depend on when and where it was done. */
export interface Step {
  /** `METHOD path?query`, or the command line; unique in its case. */
  readonly step: string;
  readonly seen: JsonObject;
}

/** The steps of each case by its name. */
export type Transcript = Readonly<Record<string, readonly Step[]>>;

/** Reduces a body to what is worth comparing. */
export type Pick = (body: Json) => Json;

export interface CallOptions {
  readonly body?: unknown;
  /** Sent as it is instead of `body`. */
  readonly raw?: string;
  readonly query?: Readonly<Record<string, string | readonly string[]>>;
  readonly accept?: string;
  readonly contentType?: string;
  readonly pick?: Pick;
  /** Told apart from the other steps of the case by this. */
  readonly note?: string;
}

export interface Reply {
  readonly status: number;
  readonly body: Json;
  readonly object: JsonObject;
}

export interface WatchOptions {
  readonly query?: Readonly<Record<string, string>>;
  readonly accept?: string;
  /** Ends the watch: after this many events, bookmarks at the end of the initial events included. */
  readonly events: number;
  readonly note?: string;
  readonly pick?: Pick;
}

export interface RunOptions {
  readonly input?: string | object;
  readonly note?: string;
  /** Record the exit code and stderr only. */
  readonly silent?: boolean;
  /** Set where a failure is what the case is about; stderr is then recorded. */
  readonly fails?: boolean;
}

/** What a case does its work with; every call but those named quiet, until and settle is recorded. */
export interface Session {
  /** The case's own namespace, deleted after it. */
  readonly ns: string;
  /** A word that no other run on this server uses: part of cluster-wide names. */
  readonly run: string;
  /** Path of a resource in the case's namespace. */
  at(apiVersion: string, plural: string, name?: string, subresource?: string): string;
  /** Path of a cluster-wide resource, or of a collection over all namespaces. */
  all(apiVersion: string, plural: string, name?: string, subresource?: string): string;
  call(method: string, path: string, options?: CallOptions): Promise<Reply>;
  get(path: string, options?: CallOptions): Promise<Reply>;
  post(path: string, body: unknown, options?: CallOptions): Promise<Reply>;
  put(path: string, body: unknown, options?: CallOptions): Promise<Reply>;
  patch(
    path: string,
    type: 'json' | 'merge' | 'strategic' | 'apply',
    body: unknown,
    options?: CallOptions,
  ): Promise<Reply>;
  delete(path: string, options?: CallOptions): Promise<Reply>;
  /** Opens a watch, does `act`, waits for the events and records them. */
  watch(path: string, options: WatchOptions, act?: () => Promise<unknown>): Promise<void>;
  quiet(method: string, path: string, options?: CallOptions): Promise<Reply>;
  /** Repeats a GET until `done`; what controllers do takes a moment on the real server. */
  until(path: string, done: (reply: Reply) => boolean): Promise<Reply>;
  kubectl(args: readonly string[], options?: RunOptions): Promise<string>;
  helm(args: readonly string[], options?: RunOptions): Promise<string>;
  /** Gives a generated name a stable placeholder in this case's transcript. */
  alias(value: string, placeholder: string): void;
  /** A folder of the case, removed after it. */
  readonly folder: string;
  /** Runs after the case, whatever became of it. */
  after(undo: () => Promise<unknown>): void;
}

export interface Case {
  readonly name: string;
  readonly run: (api: Session) => Promise<void>;
}

/** One place where two servers say different things. */
export interface Difference {
  readonly case: string;
  readonly step: string;
  /** Path in what was seen, such as `body.metadata.name`. */
  readonly path: string;
  /** JSON text; undefined where the path is missing. */
  readonly real: string | undefined;
  readonly other: string | undefined;
}

/** A difference that stays, and why. `*` in step and path stands for any text. */
export interface Accepted {
  readonly case: string;
  readonly step: string;
  readonly path: string;
  readonly reason: string;
}
