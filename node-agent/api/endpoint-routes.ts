import { messageOf } from '@weir/process/errors';
import type { FastifyInstance } from 'fastify';
import { type Audit, member, some, textOf } from './audit-fields.ts';
import { endpointTexts, endpointViews, findEndpoint, requireEndpoint } from './context.ts';
import { matchesRef, parseEndpointRef } from './endpoint-id.ts';
import { endpointHealth, endpointLabels, endpointLog } from './endpoint-model.ts';
import { parseEndpointRequest } from './endpoint-request.ts';
import { BadRequestError, ConflictError, HttpError, NotFoundError } from './errors.ts';
import { object, optionalString, queryList, stringList } from './input.ts';
import { sendJson, sendText } from './json.ts';
import { carries } from './labels.ts';
import type { ApiOptions } from './types.ts';

type IdParams = { Params: { id: string } };

/** How long a PUT waits until the kernel enforces the endpoint. */
const ENFORCE_TIMEOUT_MS = 30_000;

const added: Audit = ({ params, body }) => ({
  ...some('endpoint', member(params, 'id')),
  ...some('interface', member(body, 'interface-name')),
  ...some('ipv4', member(member(body, 'addressing'), 'ipv4')),
  ...some('ipv6', member(member(body, 'addressing'), 'ipv6')),
  ...some('container', member(body, 'container-id')),
  ...podOf(body),
});

const deleted: Audit = ({ params }) => some('endpoint', member(params, 'id'));

const deletedOf: Audit = ({ body }) => some('container', member(body, 'container-id'));

function podOf(body: unknown): object {
  const [namespace, name] = [member(body, 'k8s-namespace'), member(body, 'k8s-pod-name')];
  return namespace === undefined && name === undefined ? {} : some('pod', `${textOf(namespace)}/${textOf(name)}`);
}

export function endpointRoutes(app: FastifyInstance, options: ApiOptions): void {
  app.get('/endpoint', async (request, reply) => {
    const labels = [...queryList(request.query, 'labels'), ...stringList(request.body, 'the body (labels)')];
    const found = endpointViews(options).filter((view) =>
      labels.every((label) => view.labels !== undefined && carries(view.labels, label)),
    );
    if (labels.length > 0 && found.length === 0)
      throw new NotFoundError(`no endpoint carries all of: ${labels.join(', ')}`);
    return sendText(reply, 200, `[${(await endpointTexts(found)).join(',')}]`);
  });

  app.delete('/endpoint', { config: { audit: deletedOf } }, async (request, reply) => {
    const containerId = optionalString(object(request.body, 'the endpoint batch delete request'), 'container-id');
    if (containerId === undefined) throw new BadRequestError('"container-id" is required');
    const found = endpointViews(options, (row) => row.containerId === containerId);
    if (found.length === 0) throw new NotFoundError(`no endpoint of container ${containerId} on this node`);
    for (const view of found) await remove(options, view.row.id);
    return sendJson(reply, 200, found.length);
  });

  app.get<IdParams>('/endpoint/:id', (request, reply) =>
    sendJson(reply, 200, requireEndpoint(options, request.params.id).read()()),
  );

  app.put<IdParams>('/endpoint/:id', { config: { audit: added } }, async (request, reply) => {
    const ref = parseEndpointRef(request.params.id);
    const wanted = parseEndpointRequest(request.body, ref);
    const id = await add(options, ref, wanted);
    return sendJson(reply, 201, requireEndpoint(options, String(id)).read()());
  });

  app.delete<IdParams>('/endpoint/:id', { config: { audit: deleted } }, async (request, reply) => {
    await remove(options, requireEndpoint(options, request.params.id).row.id);
    // The number of errors, as Cilium answers.
    return sendJson(reply, 200, 0);
  });

  app.get<IdParams>('/endpoint/:id/healthz', (request, reply) =>
    sendJson(reply, 200, endpointHealth(requireEndpoint(options, request.params.id).status)),
  );

  app.get<IdParams>('/endpoint/:id/labels', (request, reply) =>
    sendJson(reply, 200, endpointLabels(requireEndpoint(options, request.params.id).status)),
  );

  app.get<IdParams>('/endpoint/:id/log', (request, reply) =>
    sendJson(reply, 200, endpointLog(requireEndpoint(options, request.params.id).status)),
  );
}

/** Returns its id, once the kernel enforces it. */
async function add(
  options: ApiOptions,
  ref: ReturnType<typeof parseEndpointRef>,
  wanted: ReturnType<typeof parseEndpointRequest>,
): Promise<number> {
  const { core } = options;
  const [existing] = endpointViews(
    options,
    (row) =>
      (wanted.id !== 0 && row.id === wanted.id) ||
      row.addresses.some((address) => wanted.addresses.includes(address)) ||
      row.interfaceName === wanted.interfaceName ||
      ((ref.prefix !== 'cilium-local' || ref.value !== '0') && matchesRef(row, ref)),
  );
  if (existing !== undefined) {
    const { id, addresses, interfaceName } = existing.row;
    throw new ConflictError(
      `endpoint ${id} (${[...addresses, interfaceName].join(', ')}) exists already; DELETE /v1/endpoint/${id} first`,
    );
  }
  const ifindex = wanted.ifindex ?? (await interfaceIndex(options, wanted.interfaceName));
  const id = wanted.id || core.allocateEndpointId();
  try {
    await core.upsertEndpoint(
      {
        id,
        ifindex,
        interfaceName: wanted.interfaceName,
        addresses: wanted.addresses,
        createdAt: new Date().toISOString(),
        ...(wanted.mac === undefined ? {} : { mac: wanted.mac }),
        ...(wanted.hostMac === undefined ? {} : { hostMac: wanted.hostMac }),
        ...(wanted.containerId === undefined ? {} : { containerId: wanted.containerId }),
        ...(wanted.containerInterface === undefined ? {} : { containerInterface: wanted.containerInterface }),
        ...(wanted.pod === undefined ? {} : { pod: wanted.pod }),
        ...(wanted.labels === undefined ? {} : { labels: wanted.labels }),
      },
      { timeoutMs: ENFORCE_TIMEOUT_MS },
    );
  } catch (error) {
    await core.deleteEndpoint(id);
    throw new HttpError(500, `endpoint ${id} could not be enforced and was removed again: ${messageOf(error)}`, {
      cause: error,
    });
  }
  return id;
}

async function remove(options: ApiOptions, id: number): Promise<void> {
  const view = findEndpoint(options, { prefix: 'cilium-local', value: String(id) });
  if (view === undefined || (await options.detach(view.row))) return;
  await options.core.deleteEndpoint(id);
}

async function interfaceIndex(options: ApiOptions, name: string): Promise<number> {
  try {
    return await options.interfaceIndex(name);
  } catch (error) {
    throw new BadRequestError(
      `"interface-name" ${name}: ${messageOf(error)}; create the interface first, in the agent's network namespace`,
    );
  }
}
