/** The in-process client: the same requests as over HTTP, without the network. */
import { noSuchResource } from './errors.ts';
import type { Json, JsonObject } from './json.ts';
import type { ApiRequest } from './request.ts';
import type { Service } from './service.ts';
import type {
  ApiClient,
  DeleteOptions,
  ListOptions,
  ObjectRef,
  PatchOptions,
  PatchType,
  ResourceRef,
  WriteOptions,
} from './types.ts';

const MEDIA: Readonly<Record<PatchType, string>> = {
  json: 'application/json-patch+json',
  merge: 'application/merge-patch+json',
  strategic: 'application/strategic-merge-patch+json',
  apply: 'application/apply-patch+yaml',
};

export class InProcessClient implements ApiClient {
  readonly #service: Service;

  constructor(service: Service) {
    this.#service = service;
  }

  get(ref: ObjectRef): Promise<JsonObject> {
    return this.#send('GET', pathOf(ref, ref.name));
  }

  list(ref: ResourceRef, options: ListOptions = {}): Promise<JsonObject> {
    const query = new URLSearchParams();
    for (const [name, value] of Object.entries(options)) if (value !== undefined) query.set(name, String(value));
    return this.#send('GET', pathOf(ref), query);
  }

  create(ref: ResourceRef, object: object, options: WriteOptions = {}): Promise<JsonObject> {
    const name = (object as { metadata?: { name?: string } }).metadata?.name;
    const path = options.subresource === undefined ? pathOf(ref) : pathOf(ref, name, options.subresource);
    return this.#send('POST', path, writeQuery(options), object);
  }

  update(ref: ObjectRef, object: object, options: WriteOptions = {}): Promise<JsonObject> {
    return this.#send('PUT', pathOf(ref, ref.name, options.subresource), writeQuery(options), object);
  }

  patch(ref: ObjectRef, type: PatchType, body: unknown, options: PatchOptions = {}): Promise<JsonObject> {
    const query = writeQuery(options);
    if (options.force === true) query.set('force', 'true');
    return this.#send('PATCH', pathOf(ref, ref.name, options.subresource), query, body, MEDIA[type]);
  }

  delete(ref: ObjectRef, options: DeleteOptions = {}): Promise<JsonObject> {
    const { dryRun, ...rest } = options;
    const body = { ...rest, ...(dryRun === true ? { dryRun: ['All'] } : {}) };
    return this.#send('DELETE', pathOf(ref, ref.name), new URLSearchParams(), body);
  }

  async #send(
    method: string,
    path: string,
    query = new URLSearchParams(),
    body?: unknown,
    contentType = 'application/json',
  ): Promise<JsonObject> {
    const request: ApiRequest = {
      method,
      path,
      query,
      accept: 'application/json',
      contentType,
      userAgent: 'in-process',
      body: body === undefined ? undefined : (JSON.parse(JSON.stringify(body)) as Json),
    };
    const result = await this.#service.handle(request);
    if (result.kind === 'watch') throw new Error('the in-process client opens no watches: use HTTP');
    // A path outside the API: the page for people says no more than this.
    if (result.status >= 400) throw noSuchResource();
    if (Buffer.isBuffer(result.body)) throw new Error(`the in-process client reads objects, and ${path} is none`);
    return typeof result.body === 'string' ? (JSON.parse(result.body) as JsonObject) : result.body;
  }
}

function pathOf(ref: ResourceRef, name?: string, subresource?: string): string {
  const root = ref.group === '' ? `/api/${ref.version}` : `/apis/${ref.group}/${ref.version}`;
  const namespace = ref.namespace === undefined || ref.namespace === '' ? '' : `/namespaces/${ref.namespace}`;
  const tail = [name, subresource]
    .filter((part) => part !== undefined && part !== '')
    .map((part) => `/${encodeURIComponent(part ?? '')}`);
  return `${root}${namespace}/${ref.plural}${tail.join('')}`;
}

function writeQuery(options: WriteOptions): URLSearchParams {
  const query = new URLSearchParams();
  query.set('fieldManager', options.fieldManager ?? 'in-process');
  if (options.dryRun === true) query.set('dryRun', 'All');
  if (options.fieldValidation !== undefined) query.set('fieldValidation', options.fieldValidation);
  return query;
}
