/**
 * Reflector: keeps a sink equal to what the API server holds of one kind.
 *
 *   list in pages -> cut what is nested too deep, trim -> sink.replace -> watch from there -> sink.upsert / sink.delete
 *                       ^                       |  ended or failed: watch again from the last version
 *                       +--- 410, sink threw, an earlier state after 504 or silence ---+
 *
 * Guarantees: the sink sees one complete state first, then every change in order; a gap is always closed by another
 * complete state; a failing server is asked at a jittered, growing interval of at most 5 s, or after its Retry-After (of at
 * most 30 s), and at once when any request of the client gets through again; a silent watch is renewed; after stop() resolves no connection, timer or call is left.
 */
import { delay } from '@weir/process/delay';
import { withoutDepths } from '@weir/process/depth';
import { Backoff } from '@weir/reconciler/backoff';
import { ApiError } from './errors.ts';
import type { KubeObject } from './kubernetes-objects.ts';
import { reachesVersion } from './resource-version.ts';
import type { Reflector, ReflectorOptions } from './types.ts';

const PAGE = 500;
/** Milliseconds for which objects of a page are reduced at once. */
const PIECE_MS = 10;
/** A watch that the server accepted, and that lived shorter than this without an event, failed: a server that closes at once is not asked in a loop. */
const SHORT_WATCH_MS = 1_000;
/** API servers send a bookmark a minute where nothing else happens (k8s.io/apiserver, cacher: bookmarkFrequency); half of one more for delays. */
const IDLE_MS = 90_000;
/** A server may ask for more patience than this; it is asked again all the same. */
const LONGEST_RETRY_AFTER_MS = 30_000;

/** Creates a reflector; nothing happens before start(). */
export function createReflector<T extends KubeObject>(options: ReflectorOptions<T>): Reflector {
  return new ListWatch(options);
}

/** Why a list must be repeated. */
class SinkError extends Error {
  override readonly name = 'SinkError';
}

class ListWatch<T extends KubeObject> implements Reflector {
  readonly #options: ReflectorOptions<T>;
  readonly #backoff: Backoff;
  readonly #stop = new AbortController();
  #loop: Promise<void> | undefined;
  #synced = false;
  #version: string | undefined;
  /** The API server may have an earlier state than `#version`: its storage was restored from a backup. */
  #doubtful = false;
  #staleSince: number | undefined;

  constructor(options: ReflectorOptions<T>) {
    this.#options = options;
    this.#backoff = new Backoff(options.backoff ?? { minMs: 200, maxMs: 5_000 });
  }

  get synced(): boolean {
    return this.#synced;
  }

  get staleSince(): number | undefined {
    return this.#staleSince;
  }

  start(): void {
    this.#loop ??= this.#run();
  }

  async stop(): Promise<void> {
    this.#stop.abort();
    await this.#loop;
  }

  async #run(): Promise<void> {
    const stopped = this.#stop.signal;
    while (!stopped.aborted) {
      try {
        if (this.#version === undefined) await this.#list();
        else if (this.#doubtful && !(await this.#stillThere(this.#version))) this.#version = undefined;
        else await this.#watch(this.#version);
      } catch (error) {
        if (stopped.aborted) return;
        await this.#recover(error instanceof Error ? error : new Error(String(error)));
      }
    }
  }

  async #recover(error: Error): Promise<void> {
    this.#staleSince ??= performance.now();
    const gone = error instanceof ApiError && error.gone;
    if (gone || error instanceof SinkError) this.#version = undefined;
    // So is a version that is too new refused.
    if (error instanceof ApiError && error.status === 504) this.#doubtful = true;
    // Too old a version is the normal end of a long silence: the list follows at once, the first time.
    const askedMs = Math.min(LONGEST_RETRY_AFTER_MS, (error instanceof ApiError ? error.retryAfterMs : 0) ?? 0);
    const retryInMs = this.#backoff.next(askedMs);
    try {
      this.#options.onError?.(error, { resource: this.#options.resource.plural, retryInMs });
    } catch {
      // The reporter itself failed; there is nobody left to tell, and the loop must live.
    }
    const recovered = new AbortController();
    const outage = error instanceof ApiError && error.unavailable;
    const woken = outage ? this.#options.client.pulse?.recoveries.subscribe(() => recovered.abort()) : undefined;
    // A recovery ends what we wait of ourselves, not what the server asks for.
    await delay(askedMs, this.#stop.signal);
    await delay(retryInMs - askedMs, AbortSignal.any([this.#stop.signal, recovered.signal]));
    woken?.unsubscribe();
  }

  async #list(): Promise<void> {
    const { client, resource, list, pageSize = PAGE } = this.#options;
    const items: T[] = [];
    let continueToken: string | undefined;
    let version = '';
    do {
      const page = await client.listPage(resource, {
        ...list,
        limit: pageSize,
        signal: this.#stop.signal,
        ...(continueToken === undefined ? {} : { continueToken }),
      });
      for await (const item of this.#trimmed(page.items)) items.push(item);
      version = page.resourceVersion;
      continueToken = page.continueToken;
    } while (continueToken !== undefined && !this.#stop.signal.aborted);
    if (this.#stop.signal.aborted) return;
    this.#deliver(() => this.#options.sink.replace(items, version));
    if (!this.#synced) {
      this.#deliver(() => this.#options.sink.synced?.());
      this.#synced = true;
    }
    this.#version = version;
    this.#doubtful = false;
    this.#staleSince = undefined;
    this.#backoff.reset();
    this.#options.onFollowing?.();
  }

  /** Whether the API server's state is not before the version, which a watch does not tell: kube-apiserver is silent until it is reached. */
  async #stillThere(version: string): Promise<boolean> {
    const { client, resource, list } = this.#options;
    const { resourceVersion } = await client.listPage(resource, { ...list, limit: 1, signal: this.#stop.signal });
    this.#doubtful = false;
    return reachesVersion(resourceVersion, version);
  }

  async #watch(from: string): Promise<void> {
    const { client, resource, list } = this.#options;
    const idleMs = this.#options.idleTimeoutMs ?? IDLE_MS;
    const ended = new AbortController();
    const signal = AbortSignal.any([ended.signal, this.#stop.signal]);
    let idle = setTimeout(() => ended.abort(), idleMs);
    let works = false;
    const worked = (): void => {
      works = true;
      this.#staleSince = undefined;
      this.#backoff.reset();
      this.#options.onFollowing?.();
    };
    // Where nothing happens, only its age tells that a watch works. How long the server took to accept it tells nothing.
    let aging: NodeJS.Timeout | undefined;
    const accepted = (): void => {
      aging = setTimeout(worked, SHORT_WATCH_MS);
    };
    try {
      for await (const event of client.watch(resource, { ...list, resourceVersion: from, signal, accepted })) {
        if (signal.aborted) break;
        clearTimeout(idle);
        idle = setTimeout(() => ended.abort(), idleMs);
        if (event.type === 'DELETED') {
          const item = this.#trim(event.object);
          this.#deliver(() => this.#options.sink.delete(item));
        } else if (event.type !== 'BOOKMARK') {
          const item = this.#trim(event.object);
          this.#deliver(() => this.#options.sink.upsert(item));
        }
        this.#version = event.object.metadata.resourceVersion ?? this.#version;
        worked();
      }
    } catch (error) {
      // The idle timer closed it: renew, which is no failure.
      if (!ended.signal.aborted) throw error;
    } finally {
      // Not even a bookmark came.
      if (ended.signal.aborted) this.#doubtful = true;
      clearTimeout(idle);
      clearTimeout(aging);
    }
    if (!works && !signal.aborted) {
      throw new ApiError(`watch ${resource.plural}: closed at once`, { status: 0, reason: 'Closed' });
    }
  }

  /** With a pause after each PIECE_MS: nobody knows how large objects are. */
  async *#trimmed(page: readonly T[]): AsyncGenerator<T> {
    let end = performance.now() + PIECE_MS;
    for (const item of page) {
      yield this.#trim(item);
      if (performance.now() < end) continue;
      await new Promise((resolve) => setImmediate(resolve));
      end = performance.now() + PIECE_MS;
    }
  }

  #trim(whole: T): T {
    const object = withoutDepths(whole);
    return this.#options.trim === undefined ? withoutManagedFields(object) : this.#options.trim(object);
  }

  #deliver(call: () => void): void {
    try {
      call();
    } catch (error) {
      throw new SinkError(`the sink of ${this.#options.resource.plural} threw: ${String(error)}`, { cause: error });
    }
  }
}

/** The default trim: managed fields are often half of an object and never read here. */
export function withoutManagedFields<T extends KubeObject>(object: T): T {
  if (!('managedFields' in object.metadata)) return object;
  const { managedFields: _, ...metadata } = object.metadata as T['metadata'] & { managedFields?: unknown };
  return { ...object, metadata };
}
