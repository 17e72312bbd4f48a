import { RESERVED } from '@weir/identity';
import {
  addressIn,
  type Family,
  familyOf,
  formatPrefix,
  ipv4Of,
  ipv6Of,
  type Prefix,
  parseAddress,
  parsePrefix,
  prefixContains,
} from '@weir/net';
import { codeOf, messageOf } from '@weir/process/errors';
import { failureKey } from '@weir/reconciler';
import type { AnyTable } from '@weir/statedb';
import type { FastifyInstance } from 'fastify';
import type { EndpointStatus } from '../core/endpoint-status.ts';
import { tableKey } from '../create-tables.ts';
import { prefixOrNone } from '../derive/contract.ts';
import type { Condition, PartCondition } from '../parts/contract.ts';
import type { EndpointRow } from '../tables.ts';
import { endpointStatuses } from './context.ts';
import { BadRequestError, HttpError, NotFoundError } from './errors.ts';
import { queryString } from './input.ts';
import { sendJson } from './json.ts';
import { identityModel } from './labels.ts';
import type { Status, StatusResponse } from './models.ts';
import type { ApiOptions } from './types.ts';

/** The setting that the status and the configuration show by itself. */
const POLICY_ENFORCEMENT = 'policy-enforcement';
/** Endpoints that are not ready and that `weir status` says the reason of. */
const MOST_UNREADY = 3;

export function statusRoutes(app: FastifyInstance, options: ApiOptions): void {
  const { core } = options;

  app.get('/healthz', (_request, reply) => {
    const status = statusResponse(options);
    return sendJson(reply, status.cilium.state === 'Ok' ? 200 : 503, status);
  });

  identityRoutes(app, options);
  mapRoutes(app, options);

  app.get('/config', (_request, reply) => sendJson(reply, 200, configuration(options)));

  app.get('/cluster/nodes', (_request, reply) => {
    using snapshot = core.db.read();
    const nodes = [...snapshot.all(core.tables.nodes)].map((node) => ({
      name: node.name,
      'primary-address': {
        ipv4: addressingOf(4, node.addresses, node.podCidrs),
        ipv6: addressingOf(6, node.addresses, node.podCidrs),
      },
      'secondary-addresses': node.addresses
        .filter((ip) => ip !== ipv4Of(node.addresses) && ip !== ipv6Of(node.addresses))
        .map((ip) => ({ enabled: true, ip })),
      'kube-apiserver': node.kubeApiserver,
    }));
    return sendJson(reply, 200, { self: options.nodeName, 'nodes-added': nodes, 'nodes-removed': [] });
  });

  app.get('/metrics', (_request, reply) =>
    sendJson(
      reply,
      200,
      core.metrics().flatMap(({ reason, direction, packets, bytes }) => [
        { name: 'weir_datapath_packets_total', value: Number(packets), labels: { reason, direction } },
        { name: 'weir_datapath_bytes_total', value: Number(bytes), labels: { reason, direction } },
      ]),
    ),
  );
}

/** Identities, and the addresses that have them. */
function identityRoutes(app: FastifyInstance, { core }: ApiOptions): void {
  app.get('/identity', (_request, reply) => {
    using snapshot = core.db.read();
    const rows = [...snapshot.all(core.tables.identities), ...core.localIdentities()].sort((a, b) => a.id - b.id);
    return sendJson(
      reply,
      200,
      rows.map((row) => identityModel(row.id, row.labels)),
    );
  });

  app.get('/identity/endpoints', (_request, reply) => {
    using snapshot = core.db.read();
    const counts = new Map<number, { labels: Readonly<Record<string, string>>; refCount: number }>();
    for (const { acknowledged } of endpointStatuses(core, snapshot)) {
      if (acknowledged === undefined) continue;
      const entry = counts.get(acknowledged.identity) ?? { labels: acknowledged.labels, refCount: 0 };
      counts.set(acknowledged.identity, { ...entry, refCount: entry.refCount + 1 });
    }
    return sendJson(
      reply,
      200,
      [...counts].map(([id, entry]) => ({ identity: identityModel(id, entry.labels), refCount: entry.refCount })),
    );
  });

  app.get<{ Params: { id: string } }>('/identity/:id', (request, reply) => {
    const id = Number(request.params.id);
    if (!/^\d+$/.test(request.params.id) || id > 0xffffffff)
      throw new BadRequestError(`identity "${request.params.id}" is not a number`);
    using snapshot = core.db.read();
    const row = snapshot.get(core.tables.identities, tableKey.identity(id));
    const own = Iterator.from(core.localIdentities()).find((each) => each.id === id);
    const labels = row?.labels ?? RESERVED.get(id) ?? own?.labels;
    if (labels === undefined) throw new NotFoundError(`no identity ${id} is known on this node`);
    return sendJson(reply, 200, identityModel(id, labels));
  });

  app.get('/ip', (request, reply) => {
    const within = prefixParameter(queryString(request.query, 'cidr'));
    using snapshot = core.db.read();
    const refused = (prefix: string): string | undefined =>
      snapshot.get(core.tables.kernelFailures, failureKey('kernel-ipcache', prefix))?.message;
    const rows = [...snapshot.all(core.tables.ipcache)].filter(
      (row) => within === undefined || prefixContains(within, parsePrefix(row.prefix)),
    );
    if (within !== undefined && rows.length === 0) throw new NotFoundError(`no entry within ${formatPrefix(within)}`);
    return sendJson(
      reply,
      200,
      rows.map((row) => ({
        cidr: row.prefix,
        identity: row.identity,
        ...(row.node === undefined ? {} : { hostIP: row.node }),
        encryptKey: 0,
        metadata: { source: row.source },
        // Weir: the kernel does not have it.
        ...(refused(row.prefix) === undefined ? {} : { refused: refused(row.prefix) }),
      })),
    );
  });
}

function mapRoutes(app: FastifyInstance, { core }: ApiOptions): void {
  app.get('/map', (_request, reply) => sendJson(reply, 200, { maps: core.maps() }));

  app.post('/map/verify', { config: { audit: () => ({ action: 'verify maps' }) } }, async (_request, reply) => {
    try {
      return sendJson(reply, 200, await core.verify());
    } catch (error) {
      if (codeOf(error) === 'ERR_WEIR_VERIFY_LATER') throw new HttpError(503, messageOf(error), { cause: error });
      throw error;
    }
  });

  app.get<{ Params: { name: string } }>('/map/:name', (request, reply) => {
    const { name } = request.params;
    const maps = core.maps();
    const map = maps.find((entry) => entry.name === name);
    if (map === undefined)
      throw new NotFoundError(`no map "${name}"; there are: ${maps.map((entry) => entry.name).join(', ') || 'none'}`);
    try {
      return sendJson(reply, 200, { path: map.path, cache: core.mapEntries(name, slotParameter(request.query, name)) });
    } catch (error) {
      if (codeOf(error) === 'ERR_WEIR_UNKNOWN_MAP')
        throw new NotFoundError(`map "${name}" has no entries to show: ${messageOf(error)}`);
      if (codeOf(error) === 'ERR_WEIR_MAP_TOO_LARGE') throw new HttpError(422, messageOf(error), { cause: error });
      throw error;
    }
  });
}

function configuration(options: ApiOptions): object {
  return {
    spec: {
      options: options.agent.settings(),
      'policy-enforcement': options.agent.settings()[POLICY_ENFORCEMENT] ?? '',
    },
    status: {
      immutable: {},
      realized: {
        options: options.agent.settings(),
        'policy-enforcement': options.agent.settings()[POLICY_ENFORCEMENT] ?? '',
      },
      nodeMonitor: { cpus: 0, npages: 0 },
      'ipam-mode': options.kubernetes ? 'kubernetes' : 'static',
      datapathMode: 'veth',
      addressing: { ipv4: rangeOf(4, options.podCidrs()), ipv6: rangeOf(6, options.podCidrs()) },
    },
  };
}

/** A family is on where the node has a range of it for pods. */
function rangeOf(family: Family, podCidrs: readonly string[]): object {
  const range = podCidrs.find((cidr) => familyOf(cidr) === family);
  return range === undefined ? { enabled: false } : { enabled: true, 'alloc-range': range };
}

function addressingOf(family: Family, addresses: readonly string[], podCidrs: readonly string[]): object {
  const ip = addresses.find((address) => familyOf(address) === family);
  return { ...rangeOf(family, podCidrs), enabled: ip !== undefined, ip: ip ?? '' };
}

/** All that `weir status` shows. */
function statusResponse(options: ApiOptions): StatusResponse {
  const { core } = options;
  const health = core.health();
  const conditions = options.agent.conditions();
  const events = conditions.find(({ name }) => name === 'events');
  const kubernetes = conditions.find(({ name }) => name === 'kubernetes');
  const resting = options.resting?.();
  using snapshot = core.db.read();
  const statuses = endpointStatuses(core, snapshot);
  const endpoints = statuses.map(({ row }) => row);
  return {
    cilium: agentStatus(options),
    kubernetes:
      kubernetes === undefined ? { state: 'Disabled', msg: 'running without Kubernetes' } : statusOf(kubernetes),
    nodeMonitor: events === undefined ? { state: 'Disabled', msg: 'no events are read' } : statusOf(events),
    ipam: {
      status: `${allocatedText(endpoints, options.podCidrs())}${resting === undefined ? '' : `; ${resting}`}`,
      ipv4: endpoints.flatMap(({ addresses }) => ipv4Of(addresses) ?? []),
      ipv6: endpoints.flatMap(({ addresses }) => ipv6Of(addresses) ?? []),
      allocations: Object.fromEntries(
        endpoints.flatMap(({ addresses, pod, interfaceName }) =>
          addresses.map((address) => [address, pod === undefined ? interfaceName : `${pod.namespace}/${pod.name}`]),
        ),
      ),
    },
    cluster: {
      self: options.nodeName,
      nodes: [...snapshot.all(core.tables.nodes)].map((node) => ({ name: node.name })),
    },
    'bpf-maps': { 'dynamic-size-ratio': 0, maps: core.maps().map((map) => ({ name: map.name, size: map.maxEntries })) },
    'identity-range': { 'min-identity': 256, 'max-identity': 65535 },
    weir: {
      version: options.version,
      node: options.nodeName,
      clusterName: options.clusterName,
      policyRevision: core.policyRevision(),
      realisedRevision: core.realised().acknowledged,
      policyEnforcement: options.agent.settings()[POLICY_ENFORCEMENT] ?? '',
      endpoints: { total: endpoints.length, ...readiness(statuses) },
      policies: snapshot.count(core.tables.policies),
      conditions: conditions
        .filter((each) => each !== kubernetes)
        .map((each) => ({ name: each.name, title: each.title, ...statusOf(each) })),
      parts: options.agent.parts(),
      checks: health.checks,
    },
  };
}

/** An endpoint may have an address of no pod CIDR: somebody else gave it. */
function allocatedText(endpoints: readonly EndpointRow[], cidrs: readonly string[]): string {
  const addresses = endpoints.flatMap((endpoint) => endpoint.addresses.map((address) => parseAddress(address)));
  const prefixes = cidrs.flatMap((cidr) => prefixOrNone(cidr) ?? []).map((cidr) => parsePrefix(cidr));
  const texts = ([4, 6] as const).flatMap((family) => {
    const all = addresses.filter((address) => address.family === family);
    const ranges = prefixes.filter((prefix) => prefix.family === family);
    if (all.length + ranges.length === 0) return [];
    const within =
      ranges.length === 0 ? all : all.filter(({ bytes }) => ranges.some((range) => addressIn(range, bytes)));
    const others = all.length - within.length;
    const from = ranges.map((range) => ` from ${formatPrefix(range)}`).join('');
    return [`IPv${family}: ${within.length} allocated${from}${others === 0 ? '' : `; ${others} from elsewhere`}`];
  });
  return texts.join('; ') || 'no address is allocated';
}

function readiness(statuses: readonly EndpointStatus[]): { ready: number; unready?: readonly string[] } {
  const others = statuses.filter(({ state }) => state !== 'ready');
  const unready = others
    .slice(0, MOST_UNREADY)
    .map(({ row, state, reason }) => `endpoint ${row.id}: ${reason ?? state}`);
  return { ready: statuses.length - others.length, ...(unready.length === 0 ? {} : { unready }) };
}

/**
 * `Failure`: something is broken. `Warning`: inputs are not complete yet; what the kernel holds from before stays enforced. `Disabled`:
 * the agent has removed itself. What else is not as it should be (the API server that does not answer, routes that are missing) is named, but is
 * no failure of the agent.
 */
export function agentStatus({ core, agent }: Pick<ApiOptions, 'core' | 'agent'>): Status {
  const idle = agent.idle();
  if (idle !== undefined) return { state: 'Disabled', msg: idle };
  const health = core.health();
  const failing = health.checks.filter((check) => !check.ok);
  if (!health.ok)
    return { state: 'Failure', msg: failing.map((check) => `${check.name}: ${check.message}`).join('; ') };
  const outside = agent.conditions().flatMap(({ vital, read }) => {
    const { ok, message } = read();
    return ok ? [] : [{ vital, message }];
  });
  const broken = outside.find(({ vital }) => vital);
  if (broken !== undefined) return { state: 'Failure', msg: broken.message };
  const waiting = Object.values(core.tables as unknown as Readonly<Record<string, AnyTable>>).filter(
    (table) => core.db.pendingInitialisers(table).length > 0,
  );
  if (waiting.length > 0)
    return {
      state: 'Warning',
      msg: `waiting for the first complete list of ${waiting.map((table) => table.name).join(', ')}`,
    };
  return {
    state: 'Ok',
    msg: outside.length === 0 ? 'it does its work' : outside.map(({ message }) => message).join('; '),
  };
}

function statusOf({ vital, read }: PartCondition): Status {
  const { ok, off, message }: Condition = read();
  if (off === true) return { state: 'Disabled', msg: message };
  return { state: ok ? 'Ok' : vital === true ? 'Failure' : 'Warning', msg: message };
}

/** Of the maps of policy slots: the slot that is asked for. */
function slotParameter(query: unknown, map: string): number | undefined {
  const text = queryString(query, 'slot');
  if (text === undefined) return undefined;
  if (!map.startsWith('policy_')) throw new BadRequestError(`the map ${map} has no slots: leave "slot" out`);
  if (!/^\d{1,4}$/.test(text))
    throw new BadRequestError(`query parameter "slot": "${text}" is not the number of a slot`);
  return Number(text);
}

function prefixParameter(text: string | undefined): Prefix | undefined {
  if (text === undefined) return undefined;
  try {
    return parsePrefix(text);
  } catch (error) {
    throw new BadRequestError(`query parameter "cidr": ${messageOf(error)}`);
  }
}
