/** Requests by kind. */
import { StringDecoder } from 'node:string_decoder';
import { messageOf } from '@weir/process/errors';
import { accessOf } from './access.ts';
import { ApiError } from './errors.ts';
import type { KubeObject } from './kubernetes-objects.ts';
import { apiVersionOf, pathOf } from './resources.ts';
import { apiErrorOf, NodeTransport, type Transport, type TransportRequest } from './transport.ts';
import type {
  FencingClient,
  KubeClient,
  KubeReviewer,
  ListOptions,
  ListPage,
  Resource,
  WatchEvent,
  WriteFence,
} from './types.ts';

export interface KubeClientOptions {
  /** Path of a kubeconfig file; undefined: the pod's service account. */
  readonly kubeconfig?: string | undefined;
  /** Shown in the API server's audit log: `weir-operator/0.1.0`. */
  readonly userAgent: string;
  /** Milliseconds a request may take; for a watch, until it is accepted. Default REQUEST_TIMEOUT_MS. */
  readonly requestTimeoutMs?: number;
}

/** Milliseconds a request may take unless the program says otherwise. */
export const REQUEST_TIMEOUT_MS = 30_000;

const PAGE = 500;
/** Seconds after which the server ends a watch, spread so that watches do not all end together. */
const WATCH_SECONDS = { min: 300, spread: 300 };

/** Throws KubeConfigError when the configuration cannot be used; makes no request. */
export function createKubeClient(options: KubeClientOptions): KubeClient & KubeReviewer & FencingClient {
  const transport = new NodeTransport(accessOf(options.kubeconfig), options.userAgent);
  return new RestClient(transport, options.requestTimeoutMs ?? REQUEST_TIMEOUT_MS);
}

const REVIEWS = {
  TokenReview: { group: 'authentication.k8s.io', plural: 'tokenreviews' },
  SubjectAccessReview: { group: 'authorization.k8s.io', plural: 'subjectaccessreviews' },
} as const;

type Typed<T extends KubeObject> = Resource<T>;

class RestClient implements KubeClient, KubeReviewer, FencingClient {
  readonly pulse: Transport['pulse'];
  readonly #transport: Transport;
  readonly #timeoutMs: number;
  readonly #fence: WriteFence | undefined;

  constructor(transport: Transport, timeoutMs: number, fence?: WriteFence) {
    this.#transport = transport;
    this.pulse = transport.pulse;
    this.#timeoutMs = timeoutMs;
    this.#fence = fence;
  }

  fenced(fence: WriteFence): KubeClient {
    return new RestClient(this.#transport, this.#timeoutMs, fence);
  }

  within(timeoutMs: number): KubeClient & KubeReviewer {
    return new RestClient(this.#transport, timeoutMs, this.#fence);
  }

  #write(request: Omit<TransportRequest, 'timeoutMs' | 'fence'>): Promise<unknown> {
    return this.#transport.json({ ...request, timeoutMs: this.#timeoutMs, fence: this.#fence });
  }

  async get<T extends KubeObject>(
    resource: Typed<T>,
    name: string,
    namespace?: string,
    signal?: AbortSignal,
  ): Promise<T> {
    const path = pathOf(resource, { namespace, name });
    return asObject<T>(await this.#transport.json({ method: 'GET', path, signal, timeoutMs: this.#timeoutMs }), path);
  }

  async list<T extends KubeObject>(
    resource: Typed<T>,
    options: ListOptions = {},
  ): Promise<{ readonly items: readonly T[]; readonly resourceVersion: string }> {
    const items: T[] = [];
    let page = await this.listPage(resource, { ...options, limit: PAGE });
    items.push(...page.items);
    while (page.continueToken !== undefined) {
      page = await this.listPage(resource, { ...options, limit: PAGE, continueToken: page.continueToken });
      items.push(...page.items);
    }
    return { items, resourceVersion: page.resourceVersion };
  }

  async listPage<T extends KubeObject>(
    resource: Typed<T>,
    options: ListOptions & { readonly limit: number; readonly continueToken?: string },
  ): Promise<ListPage<T>> {
    const path = pathOf(resource, { namespace: options.namespace });
    const answer = await this.#transport.json({
      method: 'GET',
      path,
      query: {
        ...selectors(options),
        limit: String(options.limit),
        continue: options.continueToken,
      },
      signal: options.signal,
      timeoutMs: this.#timeoutMs,
    });
    const list = answer as
      | { items?: unknown; metadata?: { resourceVersion?: unknown; continue?: unknown } }
      | undefined;
    const resourceVersion = list?.metadata?.resourceVersion;
    if (!(Array.isArray(list?.items) || list?.items === null) || typeof resourceVersion !== 'string') {
      throw badAnswer(path, 'a list without items or resourceVersion');
    }
    const token = list.metadata?.continue;
    const apiVersion = apiVersionOf(resource);
    // Items of a list carry no apiVersion and kind of their own in some servers.
    const items = ((list.items ?? []) as T[]).map((item) =>
      item.kind === undefined ? { ...item, apiVersion, kind: resource.kind } : item,
    );
    return {
      items,
      resourceVersion,
      ...(typeof token === 'string' && token !== '' ? { continueToken: token } : {}),
    };
  }

  async create<T extends KubeObject>(resource: Typed<T>, object: T): Promise<T> {
    const path = pathOf(resource, { namespace: object.metadata.namespace });
    const answer = await this.#write({ method: 'POST', path, body: object });
    return asObject<T>(answer, path);
  }

  async review(kind: keyof typeof REVIEWS, spec: object): Promise<unknown> {
    const { group, plural } = REVIEWS[kind];
    const path = `/apis/${group}/v1/${plural}`;
    const answer = await this.#write({ method: 'POST', path, body: { apiVersion: `${group}/v1`, kind, spec } });
    return (answer as { readonly status?: unknown } | undefined | null)?.status;
  }

  async replace<T extends KubeObject>(
    resource: Typed<T>,
    object: T,
    options: { readonly subresource?: 'status' } = {},
  ): Promise<T> {
    const path = pathOf(resource, {
      namespace: object.metadata.namespace,
      name: object.metadata.name,
      ...(options.subresource === undefined ? {} : { subresource: options.subresource }),
    });
    const answer = await this.#write({ method: 'PUT', path, body: object });
    return asObject<T>(answer, path);
  }

  async apply<T extends KubeObject>(
    resource: Typed<T>,
    object: T,
    options: { readonly fieldManager: string; readonly force?: boolean; readonly subresource?: 'status' },
  ): Promise<T> {
    const path = pathOf(resource, {
      namespace: object.metadata.namespace,
      name: object.metadata.name,
      ...(options.subresource === undefined ? {} : { subresource: options.subresource }),
    });
    const answer = await this.#write({
      method: 'PATCH',
      path,
      query: { fieldManager: options.fieldManager, force: options.force === true ? 'true' : undefined },
      // JSON is YAML, and every server that applies knows this media type.
      contentType: 'application/apply-patch+yaml',
      body: { ...object, apiVersion: apiVersionOf(resource), kind: resource.kind },
    });
    return asObject<T>(answer, path);
  }

  async delete<T extends KubeObject>(
    resource: Typed<T>,
    name: string,
    namespace?: string,
    options: { readonly uid?: string; readonly resourceVersion?: string; readonly gracePeriodSeconds?: number } = {},
  ): Promise<void> {
    const { gracePeriodSeconds, ...preconditions } = options;
    const body = {
      apiVersion: 'v1',
      kind: 'DeleteOptions',
      ...(Object.keys(preconditions).length === 0 ? {} : { preconditions }),
      ...(gracePeriodSeconds === undefined ? {} : { gracePeriodSeconds }),
    };
    await this.#write({
      method: 'DELETE',
      path: pathOf(resource, { namespace, name }),
      ...(Object.keys(options).length === 0 ? {} : { body }),
    });
  }

  async *watch<T extends KubeObject>(
    resource: Typed<T>,
    options: ListOptions & { readonly resourceVersion: string; readonly accepted?: () => void },
  ): AsyncGenerator<WatchEvent<T>, void, undefined> {
    const path = pathOf(resource, { namespace: options.namespace });
    const seconds = WATCH_SECONDS.min + Math.floor(Math.random() * WATCH_SECONDS.spread);
    const message = await this.#transport.stream({
      method: 'GET',
      path,
      query: {
        ...selectors(options),
        watch: 'true',
        allowWatchBookmarks: 'true',
        resourceVersion: options.resourceVersion,
        timeoutSeconds: String(seconds),
      },
      signal: options.signal,
      timeoutMs: this.#timeoutMs,
    });
    try {
      options.accepted?.();
      for await (const line of lines(message)) {
        const event = watchEvent(line, path);
        if (event.type === 'ERROR') {
          const status = event.object as { code?: unknown };
          throw apiErrorOf(status, typeof status.code === 'number' ? status.code : 500, { method: 'GET', path });
        }
        yield event as WatchEvent<T>;
      }
    } catch (error) {
      if (options.signal?.aborted === true) return;
      if (error instanceof ApiError) throw error;
      const what = `watch ${this.#transport.server}${path}`;
      const why = `the connection broke off: ${messageOf(error)}`;
      throw new ApiError(`${what}: ${why}`, { status: 0, reason: 'Unreachable', cause: error });
    } finally {
      message.destroy();
    }
  }

  close(): void {
    this.#transport.close();
  }
}

function selectors(options: ListOptions): Record<string, string | undefined> {
  return { labelSelector: options.labelSelector, fieldSelector: options.fieldSelector };
}

/** Splits a byte stream into its non-empty lines; a last line without its newline was cut off and is dropped. */
async function* lines(source: AsyncIterable<unknown>): AsyncGenerator<string, void, undefined> {
  const decoder = new StringDecoder('utf8');
  let rest = '';
  for await (const chunk of source) {
    const text = decoder.write(chunk as Buffer);
    const parts = text.split('\n');
    const last = parts.pop() ?? '';
    for (const part of parts) {
      const line = rest + part;
      rest = '';
      if (line.trim() !== '') yield line;
    }
    rest += last;
  }
}

const EVENT_TYPES = new Set(['ADDED', 'MODIFIED', 'DELETED', 'BOOKMARK', 'ERROR']);

function watchEvent(line: string, path: string): { readonly type: string; readonly object: unknown } {
  let event: unknown;
  try {
    event = JSON.parse(line);
  } catch {
    throw badAnswer(path, 'a watch event that is not JSON');
  }
  const { type, object } = (event ?? {}) as { type?: unknown; object?: unknown };
  if (typeof type !== 'string' || !EVENT_TYPES.has(type) || typeof object !== 'object' || object === null) {
    throw badAnswer(path, 'a watch event without a known type or an object');
  }
  if (type !== 'ERROR') asObject(object, path, type === 'BOOKMARK');
  return { type, object };
}

function asObject<T extends KubeObject>(answer: unknown, path: string, nameless = false): T {
  const metadata = (answer as { metadata?: { name?: unknown } } | undefined | null)?.metadata;
  if (typeof metadata !== 'object' || metadata === null || (!nameless && typeof metadata.name !== 'string')) {
    throw badAnswer(path, 'an object without metadata.name');
  }
  return answer as T;
}

function badAnswer(path: string, what: string): ApiError {
  return new ApiError(`${path}: the server answered with ${what}`, { status: 0, reason: 'BadAnswer' });
}
