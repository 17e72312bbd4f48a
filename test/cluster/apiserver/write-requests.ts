/** Requests that write: their parameters, and the webhooks that are asked before. */
import type { Admission } from './admission.ts';
import { type Answer, answer, oneOf } from './answer.ts';
import type { Core } from './core.ts';
import { badRequest, cause, invalidOptions, methodNotAllowed } from './errors.ts';
import { text } from './json.ts';
import { applyPatch, patchTypeOf } from './patch.ts';
import { type ApiRequest, isDryRun, isTrue, managerOf } from './request.ts';
import type { Route } from './route.ts';
import { patchOfScale, scaleOf } from './subresources.ts';
import type { WriteContext, Written } from './writes.ts';

const OPTIONS: Readonly<Record<string, string>> = { POST: 'Create', PUT: 'Update', PATCH: 'Patch' };

export class WriteRequests {
  readonly #core: Core;
  readonly #admission: Admission;

  constructor(core: Core, admission: Admission) {
    this.#core = core;
    this.#admission = admission;
  }

  #context(request: ApiRequest, route: Route, warnings: string[]): WriteContext {
    const { query } = request;
    const validation = query.get('fieldValidation') ?? 'Warn';
    const verb = OPTIONS[request.method] ?? 'Update';
    const manager = query.get('fieldManager') ?? '';
    if (manager.length > 128)
      throw invalidOptions(verb, [
        { reason: 'FieldValueTooLong', message: 'Too long: may not be more than 128 bytes', field: 'fieldManager' },
      ]);
    if (validation !== 'Strict' && validation !== 'Warn' && validation !== 'Ignore' && validation !== '') {
      throw invalidOptions(verb, [cause.notSupported('fieldValidation', validation, ['', 'Ignore', 'Strict', 'Warn'])]);
    }
    return {
      fieldManager: managerOf(request),
      dryRun: isDryRun(query.getAll('dryRun'), verb),
      fieldValidation: validation === '' ? 'Warn' : validation,
      subresource: route.subresource === 'status' ? 'status' : '',
      force: isTrue(query.get('force')),
      warnings,
    };
  }

  async create(request: ApiRequest, route: Route): Promise<Answer> {
    const warnings: string[] = [];
    const context = this.#context(request, route, warnings);
    const { resource, namespace } = route;
    const write = (how: WriteContext): Written => this.#core.writes.create(resource, namespace, request.body, how);
    const { object } = await this.#admitted(route, 'CreateOptions', context, write);
    return answer(oneOf(request, resource, object, this.#core.now()), 201, warnings);
  }

  async update(request: ApiRequest, route: Route): Promise<Answer> {
    const warnings: string[] = [];
    const context = this.#context(request, route, warnings);
    const { resource, namespace, name } = route;
    const write = (how: WriteContext): Written =>
      this.#core.writes.update(resource, namespace, name, request.body, how);
    const { object } = await this.#admitted(route, 'UpdateOptions', context, write);
    return answer(oneOf(request, resource, object, this.#core.now()), 200, warnings);
  }

  async patch(request: ApiRequest, route: Route): Promise<Answer> {
    const type = patchTypeOf(request.contentType, route.resource);
    const warnings: string[] = [];
    const context = this.#context(request, route, warnings);
    if (type === 'apply' && request.query.get('fieldManager') === null) {
      throw invalidOptions('Patch', [cause.required('fieldManager', 'is required for apply patch')]);
    }
    if (type !== 'apply' && request.query.get('force') !== null) {
      throw invalidOptions('Patch', [cause.forbidden('force', 'may not be specified for non-apply patch')]);
    }
    const { body } = request;
    if (body === undefined) throw badRequest('the patch has no body');
    const { resource, namespace, name } = route;
    const write = (how: WriteContext): Written => this.#core.writes.patch(resource, namespace, name, type, body, how);
    const { object, created } = await this.#admitted(route, 'PatchOptions', context, write);
    return answer(oneOf(request, resource, object, this.#core.now()), created ? 201 : 200, warnings);
  }

  scale(request: ApiRequest, route: Route): Answer {
    const { resource, namespace, name } = route;
    const scale = scaleOf(this.#core.reads.get(resource, namespace, name));
    if (request.method === 'GET') return answer(scale);
    const warnings: string[] = [];
    const context = this.#context(request, route, warnings);
    let wanted = request.body;
    if (request.method === 'PATCH') {
      const type = patchTypeOf(request.contentType, resource);
      if (type === 'apply') throw badRequest('scale: server-side apply is not served here: use a merge patch');
      wanted = applyPatch(resource, scale, type === 'json' ? type : 'merge', request.body ?? {});
    } else if (request.method !== 'PUT') throw methodNotAllowed();
    const { object } = this.#core.writes.patch(resource, namespace, name, 'merge', patchOfScale(wanted, name), context);
    return answer(scaleOf(object), 200, warnings);
  }

  bind(request: ApiRequest, route: Route): Answer {
    const node = text(request.body, 'target', 'name');
    if (node === '') throw badRequest('binding: target.name must name the node');
    const pod = this.#core.reads.get(route.resource, route.namespace, route.name);
    const bound = text(pod, 'spec', 'nodeName');
    this.#core.writes.bind(route.resource, pod, bound, node, this.#context(request, route, []));
    return answer({ kind: 'Status', apiVersion: 'v1', metadata: {}, status: 'Success', code: 201 }, 201);
  }

  /** Writes at once where nobody is to be asked. Else what a dry run makes is reviewed, and written if nobody else wrote meanwhile. */
  async #admitted(
    { resource, namespace, name }: Route,
    options: string,
    context: WriteContext,
    write: (context: WriteContext) => Written,
  ): Promise<Written> {
    const target = { resource, subresource: context.subresource };
    if (!this.#admission.concerns(target)) return write(context);
    for (;;) {
      const { store } = this.#core;
      const { object, created } = write({ ...context, dryRun: true, warnings: [] });
      const stored = created ? undefined : store.get(resource.storage, namespace, name);
      const warnings = await this.#admission.review({
        ...target,
        operation: created ? 'CREATE' : 'UPDATE',
        namespace,
        name: text(object, 'metadata', 'name'),
        object,
        previous: stored && this.#core.reads.served(resource, stored),
        dryRun: context.dryRun,
        options,
      });
      if (!created && store.get(resource.storage, namespace, name) !== stored) continue;
      const written = write(context);
      context.warnings.push(...warnings);
      return written;
    }
  }
}
