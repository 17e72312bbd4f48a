/** Test helper: what an API server is to those who write and watch, in memory: objects, versions, and one log of events for each kind. */
import { isDeepStrictEqual } from 'node:util';
import { ApiError, type KubeClient, type KubeObject, type ReflectorSink, type Resource } from '@weir/kube';

interface Event {
  readonly deleted: boolean;
  readonly object: KubeObject;
}

/** A write that has been sent and not answered. */
interface Request {
  /** Carries it out. */
  readonly run: () => unknown;
  readonly resolve: (answer: unknown) => void;
  readonly reject: (error: Error) => void;
}

/** `failed`: not carried out. `lost`: carried out, but the answer is an error. */
export type Answer = 'ok' | 'failed' | 'lost';

export class Api {
  readonly #objects = new Map<string, Map<string, KubeObject>>();
  readonly #logs = new Map<string, Event[]>();
  readonly #requests: Request[] = [];
  #version = 1;

  /** Writes of this client wait for `answer`. */
  readonly client: Pick<KubeClient, 'apply' | 'replace' | 'delete'> = {
    apply: (resource, object, { subresource }) => this.#request(() => this.put(resource.kind, object, subresource)),
    replace: (resource, object, options) => this.#request(() => this.put(resource.kind, object, options?.subresource)),
    delete: (resource: Resource<KubeObject>, name, namespace) =>
      this.#request<void>(() => this.remove(resource.kind, keyOf({ name, ...(namespace && { namespace }) }))),
  };

  /** Requests that wait. */
  get waiting(): number {
    return this.#requests.length;
  }

  /** Answers one of the requests that wait. */
  answer(index: number, how: Answer): void {
    const [request] = this.#requests.splice(index % this.#requests.length, 1);
    if (request === undefined) return;
    const failure = new ApiError('the test says so', { status: 503, reason: 'ServiceUnavailable' });
    try {
      const answer = how === 'failed' ? undefined : request.run();
      if (how === 'ok') request.resolve(answer);
      else request.reject(failure);
    } catch (error) {
      request.reject(error as Error);
    }
  }

  /** Puts an object at once, as users and kubelets do. */
  put<T extends KubeObject>(kind: string, object: T, subresource?: 'status'): T {
    const objects = this.#of(kind);
    const before = objects.get(keyOf(object.metadata));
    const { status: had, ...rest } = { ...before } as KubeObject & { readonly status?: unknown };
    const { status, ...given } = object as T & { readonly status?: unknown };
    if (subresource === 'status' && before === undefined) throw notFound();
    const body = subresource === 'status' ? { ...rest, status } : { ...given, status: kind === 'Pod' ? status : had };
    const uid = object.metadata.uid ?? before?.metadata.uid ?? `uid-${this.#next()}`;
    const changed = { ...body, metadata: { ...body.metadata, uid, resourceVersion: before?.metadata.resourceVersion } };
    if (isDeepStrictEqual(changed, before)) return before as T;
    const after = { ...changed, metadata: { ...changed.metadata, resourceVersion: this.#next() } };
    objects.set(keyOf(object.metadata), after as unknown as T);
    this.#log(kind).push({ deleted: false, object: after as unknown as T });
    return after as unknown as T;
  }

  remove(kind: string, key: string): void {
    const objects = this.#of(kind);
    const before = objects.get(key);
    if (before === undefined) throw notFound();
    objects.delete(key);
    const object = { ...before, metadata: { ...before.metadata, resourceVersion: this.#next() } };
    this.#log(kind).push({ deleted: true, object });
  }

  objects<T extends KubeObject>(kind: string): T[] {
    return [...this.#of(kind).values()] as T[];
  }

  /** A list now, or with the first delivery, and from then on the events, as many at a time as are asked for. */
  watch<T extends KubeObject>(
    kind: string,
    sink: ReflectorSink<T>,
    { of = () => true, late = false }: { readonly of?: (object: T) => boolean; readonly late?: boolean } = {},
  ): Watch {
    const log = this.#log(kind);
    let told: number | undefined;
    const list = (): number => {
      sink.replace(this.objects<T>(kind).filter(of), String(this.#version));
      told = log.length;
      return told;
    };
    if (!late) list();
    return {
      kind,
      get listed() {
        return told !== undefined;
      },
      deliver(count) {
        told ??= list();
        const events = log.slice(told, told + count);
        told += events.length;
        for (const { deleted, object } of events as { deleted: boolean; object: T }[]) {
          if (!of(object)) continue;
          if (deleted) sink.delete(object);
          else sink.upsert(object);
        }
        return events.length;
      },
    };
  }

  #of(kind: string): Map<string, KubeObject> {
    const objects = this.#objects.get(kind) ?? new Map<string, KubeObject>();
    this.#objects.set(kind, objects);
    return objects;
  }

  #log(kind: string): Event[] {
    const log = this.#logs.get(kind) ?? [];
    this.#logs.set(kind, log);
    return log;
  }

  #next(): string {
    this.#version += 1;
    return String(this.#version);
  }

  #request<R>(run: () => R): Promise<R> {
    return new Promise<R>((resolve, reject) => {
      this.#requests.push({ run, resolve: resolve as (answer: unknown) => void, reject });
    });
  }
}

export interface Watch {
  readonly kind: string;
  /** Whether the list was delivered. */
  readonly listed: boolean;
  /** Delivers the next events, at most `count`; returns how many there were. */
  deliver(count: number): number;
}

export function keyOf({ namespace, name }: { readonly namespace?: string; readonly name: string }): string {
  return namespace === undefined ? name : `${namespace}/${name}`;
}

function notFound(): ApiError {
  return new ApiError('there is no such object', { status: 404, reason: 'NotFound' });
}
