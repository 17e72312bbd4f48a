/** Requests and their answers, apart from the transport: HTTP and the in-process client both end here. */
import type { Admission } from './admission.ts';
import { type Answer, answer, oneOf } from './answer.ts';
import type { Core } from './core.ts';
import { deletedAnswer } from './deletes.ts';
import {
  aggregated,
  apiGroupList,
  apiVersions,
  groupOf,
  REVIEW_GROUPS,
  resourceList,
  servesGroup,
  VERSION,
} from './discovery.ts';
import { methodNotAllowed, noSuchResource } from './errors.ts';
import type { FaultInjector, RequestInfo, RequestStats } from './faults.ts';
import { isObject, type JsonObject, text } from './json.ts';
import { openApiIndex } from './openapi.ts';
import { OPENAPI_V2_PROTOBUF, wantsProtobuf } from './openapi-v2.ts';
import { listObject } from './reads.ts';
import {
  type ApiRequest,
  checkListOptions,
  checkRevision,
  deleteOptions,
  deleteOptionsOf,
  integer,
  isTrue,
  managerOf,
} from './request.ts';
import { type Route, routeOf, splitPath } from './route.ts';
import { hasScale, refuseKubelet } from './subresources.ts';
import { partialMetadata, toTable, type View, viewOf } from './table.ts';
import { Watch, type WatchEvent } from './watch.ts';
import { WriteRequests } from './write-requests.ts';

export interface WatchAnswer {
  readonly kind: 'watch';
  readonly info: RequestInfo;
  readonly timeoutSeconds: number;
  /** Starts the watch; events come through `emit`. Throws StatusError before the first event or not at all. */
  readonly open: (emit: (event: WatchEvent) => void) => { watch: Watch; live: boolean };
}

const PLAIN = 'text/plain; charset=utf-8';
const NO_PAGE: Answer = { ...answer('404 page not found\n', 404), contentType: PLAIN };

const METHODS = new Set(['GET', 'POST', 'PUT', 'PATCH', 'DELETE']);

export class Service {
  readonly #core: Core;
  readonly #faults: FaultInjector;
  readonly #stats: RequestStats;
  readonly #writes: WriteRequests;

  constructor(core: Core, admission: Admission, faults: FaultInjector, stats: RequestStats) {
    this.#core = core;
    this.#writes = new WriteRequests(core, admission);
    this.#faults = faults;
    this.#stats = stats;
  }

  /** @throws StatusError */
  async handle(request: ApiRequest): Promise<Answer | WatchAnswer> {
    if (!METHODS.has(request.method)) throw methodNotAllowed();
    const gv = splitPath(request.path);
    const isObjectPath = gv !== undefined && gv.rest.length > 0;
    const info = this.#describe(request, gv?.group ?? '', gv?.rest ?? []);
    this.#stats.record(info);
    const delay = this.#faults.delayOf(info);
    if (delay > 0) await new Promise((resolve) => setTimeout(resolve, delay).unref());
    this.#faults.check(info);
    if (!isObjectPath) return this.#meta(request, gv?.group, gv?.version);
    if (!servesGroup(this.#core.registry, gv.group)) return NO_PAGE;
    const review = this.#review(gv.group, gv.rest, request);
    if (review !== undefined) return review;
    const result = await this.#resource(request, routeOf(this.#core.registry, gv), info);
    this.#faults.answered(info);
    return result;
  }

  #describe(request: ApiRequest, group: string, rest: readonly string[]): RequestInfo {
    const scoped = rest[0] === 'namespaces' && rest.length >= 3;
    const [plural = '', name = '', sub = ''] = scoped ? rest.slice(2) : rest;
    const watching = isTrue(request.query.get('watch'));
    const apply = request.contentType === 'application/apply-patch+yaml';
    const verbs: Record<string, string> = {
      GET: watching ? 'watch' : name === '' ? 'list' : 'get',
      POST: 'create',
      PUT: 'update',
      PATCH: apply ? 'apply' : 'patch',
      DELETE: name === '' ? 'deletecollection' : 'delete',
    };
    return {
      verb: rest.length === 0 ? 'get' : (verbs[request.method] ?? request.method.toLowerCase()),
      group,
      resource: sub === '' ? plural || request.path : `${plural}/${sub}`,
      namespace: scoped ? (rest[1] ?? '') : '',
      name,
      fieldManager: managerOf(request),
      userAgent: request.userAgent,
    };
  }

  #meta(request: ApiRequest, group: string | undefined, version: string | undefined): Answer {
    const { registry } = this.#core;
    const path = request.path.replace(/\/$/, '');
    if (request.method !== 'GET') throw methodNotAllowed();
    const wantsAggregated = /g=apidiscovery\.k8s\.io;v=v2(;|,|$)|v=v2;g=apidiscovery\.k8s\.io/.test(request.accept);
    const AGGREGATED = 'application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList';
    if (path === '/version') return answer(VERSION);
    if (['/healthz', '/livez', '/readyz'].includes(path)) return { ...answer('ok'), contentType: PLAIN };
    if (path === '/api') {
      return wantsAggregated
        ? { ...answer(aggregated(registry, true)), contentType: AGGREGATED }
        : answer(apiVersions());
    }
    if (path === '/apis') {
      return wantsAggregated
        ? { ...answer(aggregated(registry, false)), contentType: AGGREGATED }
        : answer(apiGroupList(registry));
    }
    if (path === '/openapi/v2') {
      const { openApiV2 } = this.#core;
      return wantsProtobuf(request.accept)
        ? { ...answer(openApiV2.protobuf()), contentType: OPENAPI_V2_PROTOBUF }
        : answer(openApiV2.json());
    }
    if (path === '/openapi/v3') return { ...answer(openApiIndex(registry)), contentType: PLAIN };
    if (path.startsWith('/openapi/v3/')) {
      const at = splitPath(path.slice('/openapi/v3'.length));
      const document = at === undefined ? undefined : this.#core.openApi.document(at.group, at.version);
      if (document === undefined) return { ...NO_PAGE, body: '', contentType: '' };
      return answer(document);
    }
    if (path === '' || path === '/')
      return answer({ paths: ['/api', '/apis', '/healthz', '/openapi/v2', '/openapi/v3', '/version'] });
    const named = /^\/apis\/([^/]+)$/.exec(path)?.[1];
    const found =
      named !== undefined
        ? groupOf(registry, named)
        : version === undefined
          ? undefined
          : resourceList(registry, group ?? '', version);
    if (found !== undefined) return answer(found);
    // What no group serves is no API path at all.
    if (group === undefined || !servesGroup(registry, group)) return NO_PAGE;
    throw noSuchResource();
  }

  /** Access and identity reviews: everything is allowed, everyone is administrator. */
  #review(group: string, rest: readonly string[], request: ApiRequest): Answer | undefined {
    const plural = rest.at(-1);
    const review = (REVIEW_GROUPS[group] ?? []).find((entry) => entry.plural === plural);
    if (review === undefined) return undefined;
    if (request.method !== 'POST') throw methodNotAllowed();
    const reason = 'this API server has no authorization: all requests are allowed';
    const rules = {
      resourceRules: [{ verbs: ['*'], apiGroups: ['*'], resources: ['*'] }],
      nonResourceRules: [{ verbs: ['*'], nonResourceURLs: ['*'] }],
      incomplete: false,
    };
    const status: JsonObject =
      review.kind === 'SelfSubjectReview'
        ? { userInfo: { username: 'admin', groups: ['system:masters'] } }
        : review.kind === 'SelfSubjectRulesReview'
          ? rules
          : { allowed: true, reason };
    const body = isObject(request.body) ? request.body : {};
    return answer(
      { ...body, kind: review.kind, apiVersion: `${group}/v1`, metadata: body.metadata ?? {}, status },
      201,
    );
  }

  #resource(request: ApiRequest, route: Route, info: RequestInfo): Answer | WatchAnswer | Promise<Answer> {
    const { resource, name, subresource } = route;
    const known = subresource === '' || (subresource === 'status' && resource.statusSubresource);
    if (subresource === 'binding' && resource.storage === '/pods' && request.method === 'POST') {
      return this.#writes.bind(request, route);
    }
    if (subresource === 'eviction' && resource.storage === '/pods' && request.method === 'POST') {
      return answer(this.#core.evictions.evict(resource, route.namespace, name, deleteOptionsOf(request)), 201);
    }
    if (subresource === 'scale' && hasScale(resource)) return this.#writes.scale(request, route);
    refuseKubelet(resource, name, subresource);
    const finalizing = subresource === 'finalize' && resource.storage === '/namespaces';
    if (!known && !finalizing) throw noSuchResource();
    if (route.anywhere && request.method === 'POST') throw methodNotAllowed();
    switch (request.method) {
      case 'GET':
        if (info.verb === 'watch') return this.#watch(request, route, info);
        return name === '' ? this.#list(request, route) : this.#get(request, route);
      case 'POST':
        if (name !== '') throw methodNotAllowed();
        return this.#writes.create(request, route);
      case 'PUT':
        if (name === '') throw methodNotAllowed();
        return this.#writes.update(request, route);
      case 'PATCH':
        if (name === '') throw methodNotAllowed();
        return this.#writes.patch(request, route);
      default:
        if (subresource !== '') throw methodNotAllowed();
        if (name === '' && (route.anywhere || resource.storage === '/namespaces')) throw methodNotAllowed();
        return name === '' ? this.#deleteCollection(request, route) : this.#delete(request, route);
    }
  }

  #get(request: ApiRequest, { resource, namespace, name }: Route): Answer {
    checkRevision(request.query.get('resourceVersion') ?? '');
    const object = this.#core.reads.get(resource, namespace, name);
    return answer(oneOf(request, resource, object, this.#core.now()));
  }

  #list(request: ApiRequest, { resource, namespace }: Route): Answer {
    const { query } = request;
    const limit = query.get('limit');
    checkListOptions(query, false);
    const listed = this.#core.reads.list(resource, namespace, {
      labelSelector: query.get('labelSelector') ?? '',
      fieldSelector: query.get('fieldSelector') ?? '',
      continue: query.get('continue') ?? '',
      resourceVersion: query.get('resourceVersion') || '0',
      exact: query.get('resourceVersionMatch') === 'Exact',
      ...(limit === null ? {} : { limit: integer('limit', limit) }),
    });
    const view = viewOf(request.accept);
    if (view === 'table') {
      const include = query.get('includeObject') ?? '';
      return answer(toTable(resource, listed.objects, listed.metadata, include, this.#core.now()));
    }
    if (view === 'partial') {
      const items = listed.objects.map(partialMetadata);
      return answer({
        kind: 'PartialObjectMetadataList',
        apiVersion: 'meta.k8s.io/v1',
        metadata: listed.metadata,
        items,
      });
    }
    return answer(listObject(resource, listed));
  }

  #watch(request: ApiRequest, { resource, namespace, name }: Route, info: RequestInfo): WatchAnswer {
    const { query } = request;
    checkListOptions(query, true);
    checkRevision(query.get('resourceVersion') ?? '');
    const view = viewOf(request.accept);
    const include = query.get('includeObject') ?? '';
    const named = name === '' ? [] : [`metadata.name=${name}`];
    const fieldSelector = [query.get('fieldSelector') ?? '', ...named].filter((part) => part !== '').join(',');
    const initial = query.get('sendInitialEvents');
    const options = {
      namespace,
      labelSelector: query.get('labelSelector') ?? '',
      fieldSelector,
      resourceVersion: query.get('resourceVersion') ?? '',
      allowBookmarks: isTrue(query.get('allowWatchBookmarks')),
      sendInitialEvents: initial === null ? undefined : isTrue(initial),
    };
    const { store, reads } = this.#core;
    return {
      kind: 'watch',
      info,
      timeoutSeconds: integer('timeoutSeconds', query.get('timeoutSeconds') ?? '0'),
      open: (emit) => {
        let first = true;
        const shaped = (event: WatchEvent): void => {
          const object = this.#shape(event, view, resource, include, first);
          first = false;
          emit({ type: event.type, object });
        };
        const watch = new Watch(store, reads, resource, options, shaped);
        const live = watch.start();
        return { watch, live };
      },
    };
  }

  #shape(event: WatchEvent, view: View, resource: Route['resource'], include: string, first: boolean): JsonObject {
    if (view === 'object' || event.type === 'ERROR') return event.object;
    if (view === 'partial') return partialMetadata(event.object);
    const metadata = { resourceVersion: text(event.object, 'metadata', 'resourceVersion') };
    const rows = event.type === 'BOOKMARK' ? [] : [event.object];
    const table = toTable(resource, rows, metadata, include, this.#core.now(), first);
    if (event.type === 'BOOKMARK') table.metadata = event.object.metadata ?? {};
    return table;
  }

  #delete(request: ApiRequest, route: Route): Answer {
    const options = deleteOptions(request);
    const { object, gone } = this.#core.deletes.delete(route.resource, route.namespace, route.name, options);
    if (!gone) return answer(oneOf(request, route.resource, object, this.#core.now()));
    return answer(deletedAnswer(route.resource, object, options, this.#core.now()));
  }

  #deleteCollection(request: ApiRequest, { resource, namespace }: Route): Answer {
    const { query } = request;
    const listed = this.#core.reads.list(resource, namespace, {
      labelSelector: query.get('labelSelector') ?? '',
      fieldSelector: query.get('fieldSelector') ?? '',
    });
    const options = deleteOptions(request);
    for (const object of listed.objects) {
      const [home, name] = [text(object, 'metadata', 'namespace'), text(object, 'metadata', 'name')];
      if (this.#core.store.get(resource.storage, home, name) === undefined) continue;
      this.#core.deletes.delete(resource, home, name, options);
    }
    return answer(listObject(resource, listed));
  }
}
