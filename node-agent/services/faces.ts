/** Services as people see them: what is wanted, beside what the kernel has taken. */
import { keys, type Reader, type Table } from '@weir/statedb';
import type { FastifyInstance } from 'fastify';
import { NotFoundError } from '../api/errors.ts';
import { sendJson } from '../api/json.ts';
import type { ServiceAddressModel, ServiceBackendModel, ServiceModel } from '../api/models.ts';
import { frontendRowKey } from './frontends.ts';
import type { RealisedService, RealisedTables } from './realised.ts';
import type { Frontend, Protocol, Scope } from './types.ts';

export interface FaceSources {
  readonly read: () => Disposable & Reader;
  readonly frontends: Table<Frontend>;
  readonly realised: RealisedTables;
  /** Frontends that the kernel lacks, by the key of their row, with why. */
  readonly failures: () => ReadonlyMap<string, FrontendFailure>;
}

export interface FrontendFailure {
  /** `namespace/name`. */
  readonly service: string;
  readonly message: string;
}

export function serviceRoutes(app: FastifyInstance, sources: FaceSources): void {
  app.get('/service', (_request, reply) => {
    using snapshot = sources.read();
    const failures = sources.failures();
    return sendJson(
      reply,
      200,
      Array.from(snapshot.all(sources.frontends), (row) => modelOf(snapshot, sources, row, failures)),
    );
  });
  app.get<{ Params: { id: string } }>('/service/:id', (request, reply) => {
    const { id } = request.params;
    using snapshot = sources.read();
    const found = /^\d{1,9}$/.test(id)
      ? snapshot.get(sources.realised.services, keys.uint(Number(id)))?.row
      : undefined;
    const row = found === undefined ? undefined : snapshot.get(sources.frontends, found);
    if (row === undefined) throw new NotFoundError(`no service has the number ${JSON.stringify(id)}`);
    return sendJson(reply, 200, modelOf(snapshot, sources, row, sources.failures()));
  });
}

function modelOf(
  reader: Reader,
  { realised: tables }: FaceSources,
  row: Frontend,
  failures: ReadonlyMap<string, FrontendFailure>,
): ServiceModel {
  const key = frontendRowKey(row);
  const [realised] = reader.list(tables.services, 'row', key);
  const slash = row.service.indexOf('/');
  const addresses = row.addresses.map((ip) => addressModel(ip, row.port, row.protocol, row.scope));
  const error = failures.get(key)?.message;
  return {
    spec: {
      id: realised?.id ?? 0,
      'frontend-address': addresses[0] ?? addressModel('', row.port, row.protocol, row.scope),
      'frontend-addresses': addresses,
      'backend-addresses': row.backends.map(({ address: ip, port, node, state }) => ({
        ip,
        port,
        protocol: lower(row.protocol),
        ...(node === undefined ? {} : { nodeName: node }),
        state,
      })),
      flags: {
        type: row.kind,
        namespace: row.service.slice(0, slash),
        name: row.service.slice(slash + 1),
        'port-name': row.portName,
        intTrafficPolicy: row.internalPolicy,
        extTrafficPolicy: row.externalPolicy,
        'affinity-seconds': row.affinitySeconds ?? 0,
        ...(row.sourceRanges === undefined ? {} : { 'source-ranges': row.sourceRanges }),
      },
    },
    status: {
      ...(realised === undefined ? {} : { realized: realisedModel(reader, tables, realised) }),
      ...(error === undefined ? {} : { error }),
    },
  };
}

function realisedModel(
  reader: Reader,
  { backends }: RealisedTables,
  { id, frontends, slots }: RealisedService,
): NonNullable<ServiceModel['status']['realized']> {
  return {
    id,
    'frontend-addresses': frontends.map(({ address, port, protocol, scope }) =>
      addressModel(address, port, protocol, scope),
    ),
    'backend-addresses': slots.flatMap((slot) => {
      const backend = reader.get(backends, keys.uint(slot));
      return backend === undefined ? [] : [namedBackend(backend.name)];
    }),
  };
}

/** @param name as `backendName` makes it */
function namedBackend(name: string): ServiceBackendModel {
  const [ip = '', port = '', protocol = 'TCP'] = name.split(' ');
  return { ip, port: Number(port), protocol: lower(protocol as Protocol) };
}

function addressModel(ip: string, port: number, protocol: Protocol, scope: Scope): ServiceAddressModel {
  return { ip, port, protocol: lower(protocol), scope: scope === 'local' ? 'external' : 'internal' };
}

function lower(protocol: Protocol): ServiceAddressModel['protocol'] {
  return protocol.toLowerCase() as ServiceAddressModel['protocol'];
}
