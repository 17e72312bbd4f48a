/** What people see of Services: what is wanted, beside what the kernel has taken. */
import { beforeEach, describe, expect, it } from '@jest/globals';
import { createStateDB, type StateDB } from '@weir/statedb';
import Fastify from 'fastify';
import { createMemoryMap } from 'libbpf-ts';
import { Registry } from 'prom-client';
import type { ServiceModel } from '../api/models.ts';
import { BackendNames } from './backend-names.ts';
import { type FaceSources, type FrontendFailure, serviceRoutes } from './faces.ts';
import { frontendRowKey } from './frontends.ts';
import { backendValue, frontendKey } from './layout.ts';
import { SERVICE_MAPS } from './maps.ts';
import { serviceMetrics } from './metrics.ts';
import { FrontendOperations } from './operations.ts';
import { realisedTables } from './realised.ts';
import { serviceTables } from './services.ts';
import type { Frontend } from './types.ts';

let db: StateDB;
let sources: FaceSources;
let operations: FrontendOperations;
const failures = new Map<string, FrontendFailure>();
beforeEach(() => {
  failures.clear();
  db = createStateDB();
  const map = (name: string, keySize: number, valueSize: number) =>
    createMemoryMap({ name, type: 'hash', keySize, valueSize, maxEntries: 8, flags: 1 });
  const trie = { name: 't', type: 'lpm_trie', keySize: 24, valueSize: 4, maxEntries: 8, flags: 1 } as const;
  const maps = {
    ...{ frontends: map('f', 20, 16), slots: map('s', 8, 8), backends: map('b', 4, 20), members: map('m', 8, 4) },
    sources: createMemoryMap(trie),
  };
  const { frontends } = serviceTables(db);
  const realised = realisedTables(db);
  operations = new FrontendOperations({ db, maps, realised });
  sources = { read: () => db.read(), frontends, realised, failures: () => failures };
});

const frontend = (name: string, more: Partial<Frontend> = {}): Frontend => ({
  ...{ service: `ns/${name}`, portName: 'web', protocol: 'TCP', family: 4, kind: 'ClusterIP', scope: 'cluster' },
  ...{ port: 80, addresses: ['10.96.0.1'], internalPolicy: 'Cluster', externalPolicy: 'Cluster' },
  backends: [
    { address: '10.0.0.1', port: 8080, node: 'n1', state: 'active' },
    { address: '10.0.0.2', port: 8080, node: 'n2', state: 'active' },
  ],
  ...more,
});

function want(row: Frontend): Frontend {
  db.write([sources.frontends], (txn) => txn.upsert(sources.frontends, row));
  return row;
}

async function get(path: string): Promise<{ readonly statusCode: number; json(): unknown }> {
  const app = Fastify();
  serviceRoutes(app, sources);
  return await app.inject(path);
}

const list = async (): Promise<ServiceModel[]> => (await get('/service')).json() as ServiceModel[];

describe('GET /v1/service', () => {
  it('tells what is wanted from what the kernel has', async () => {
    const row = want(frontend('web', { affinitySeconds: 60 }));
    const [before] = await list();
    expect(before?.spec.id).toBe(0);
    expect(before?.status).toEqual({});
    operations.update(row);
    want(frontend('web', { backends: [{ address: '10.0.0.9', port: 8080, state: 'terminating' }] }));
    const [model] = await list();
    expect(model?.spec).toEqual({
      id: model?.status.realized?.id,
      'frontend-address': { ip: '10.96.0.1', port: 80, protocol: 'tcp', scope: 'internal' },
      'frontend-addresses': [{ ip: '10.96.0.1', port: 80, protocol: 'tcp', scope: 'internal' }],
      'backend-addresses': [{ ip: '10.0.0.9', port: 8080, protocol: 'tcp', state: 'terminating' }],
      flags: {
        ...{ type: 'ClusterIP', namespace: 'ns', name: 'web', 'port-name': 'web', 'affinity-seconds': 0 },
        ...{ intTrafficPolicy: 'Cluster', extTrafficPolicy: 'Cluster' },
      },
    });
    expect(model?.status.realized?.['backend-addresses']).toEqual([
      { ip: '10.0.0.1', port: 8080, protocol: 'tcp' },
      { ip: '10.0.0.2', port: 8080, protocol: 'tcp' },
    ]);
  });

  it('has each by its number, and no other', async () => {
    operations.update(want(frontend('web')));
    const [model] = await list();
    expect((await get(`/service/${model?.spec.id}`)).json()).toEqual(model);
    for (const id of ['0', '4711', 'web', '99999999999', '-1'])
      expect((await get(`/service/${id}`)).statusCode).toBe(404);
  });

  it('says of which the kernel refuses why', async () => {
    const row = want(frontend('large'));
    failures.set(frontendRowKey(row), { service: row.service, message: 'map svc_slots is full' });
    expect((await list())[0]?.status).toEqual({ error: 'map svc_slots is full' });
  });
});

it('events name the Services that the kernel has a backend for, and rest from making the list', () => {
  let now = 0;
  const names = new BackendNames(sources, () => {
    now += 10;
    return now;
  });
  const of = (address: string, port: number, protocol: number) => names.backendOf(address, port, protocol);
  const rows = [want(frontend('web')), want(frontend('api', { port: 81, addresses: ['10.96.0.2'] }))];
  expect(of('10.0.0.1', 8080, 6)).toEqual([]);
  for (const row of rows) operations.update(row);
  expect(of('10.0.0.1', 8080, 6)).toEqual([]);
  now += 200;
  expect(of('10.0.0.1', 8080, 6)).toEqual(['ns/api', 'ns/web']);
  expect(of('10.0.0.1', 8080, 17)).toEqual([]);
  expect(of('10.0.0.1', 80, 6)).toEqual([]);
  expect(of('10.0.0.3', 8080, 6)).toEqual([]);
  expect(of('10.0.0.1', 0, 1)).toEqual([]);
  operations.update(want(frontend('web', { backends: [] })));
  now += 200;
  expect(of('10.0.0.1', 8080, 6)).toEqual(['ns/api']);
});

it('counts frontends, those that fail, and backends', async () => {
  operations.update(want(frontend('web')));
  const row = want(frontend('api', { port: 81, addresses: ['10.96.0.2'] }));
  failures.set(frontendRowKey(row), { service: row.service, message: 'full' });
  const registry = new Registry();
  serviceMetrics(sources, registry);
  const text = await registry.metrics();
  for (const line of ['frontends 2', 'frontends_failing 1', 'backends 2'])
    expect(text).toContain(`weir_agent_service_${line}\n`);
});

it('maps of the programs alone are printed in words', () => {
  const describe = (name: string, key: Uint8Array, value: Uint8Array) =>
    SERVICE_MAPS.find((map) => map.name === name)?.describe(key, value);
  const address = (text: string) => backendValue.encode({ address: text, port: 53, protocol: 'UDP' });
  const client = new Uint8Array(24);
  client[0] = 7;
  const backend = Uint8Array.of(9, 0, 0, 0, 1, 1, 1, 1);
  client.set([0x10, 0x27], 8);
  expect(describe('svc_clients', client, backend)).toEqual({
    key: { service: 7, netns: '10000' },
    value: { backend: 9 },
  });
  client.set(address('10.0.0.1').slice(0, 16), 8);
  expect(describe('svc_clients', client, backend)).toEqual({
    key: { service: 7, client: '10.0.0.1' },
    value: { backend: 9 },
  });
  const flows = new Uint8Array(192);
  flows.set([10, 96, 0, 10, 10, 0, 0, 1, 0, 53, 0x14, 0xe9, 0x9c, 0x40, 17], 24);
  expect(describe('svc_flows', Uint8Array.of(3, 0, 0, 0, 5, 0, 0, 0), flows)).toEqual({
    key: { ifindex: 3, set: 5 },
    value: { flows: [{ protocol: 'UDP', port: 40_000, frontend: '10.96.0.10:53', backend: '10.0.0.1:5353' }] },
  });
  const socket = new Uint8Array(32);
  socket[0] = 5;
  socket.set(address('fd00::1'), 8);
  const original = new Uint8Array(24);
  original.set(frontendKey.encode({ address: '10.96.0.10', port: 53, protocol: 'UDP', scope: 'cluster' }).slice(0, 18));
  original[20] = 7;
  expect(describe('svc_sockets', socket, original)).toEqual({
    key: { cookie: '5', backend: 'fd00::1', port: 53, protocol: 'UDP' },
    value: { address: '10.96.0.10', port: 53, service: 7 },
  });
});
