/** Questions of load balancers, by HTTP. */
import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import { afterEach, beforeEach, expect, it } from '@jest/globals';
import type { EndpointSlice, Service } from '@weir/kube';
import { createStateDB } from '@weir/statedb';
import { silent } from '../datapath/testing/lab.ts';
import { ServiceHealth } from './health.ts';
import { healthCondition } from './part.ts';
import { serviceObjectParts, sliceParts } from './rows.ts';
import { type ServiceTables, serviceTables } from './services.ts';

/** On which no other test connects or listens: a port that is free here stays so. */
const HOST = '127.0.41.1';

let db: ReturnType<typeof createStateDB>;
let tables: ServiceTables;
let health: ServiceHealth;
let translates = true;
let port = 0;
let healthz = 0;

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, HOST, resolve));
  const address = server.address();
  await new Promise((resolve) => server.close(resolve));
  return typeof address === 'object' && address !== null ? address.port : 0;
}

function service(spec: Service['spec'] = {}): Service {
  return {
    ...{ apiVersion: 'v1', kind: 'Service', metadata: { name: 'web', namespace: 'ns' } },
    spec: {
      ...{ type: 'LoadBalancer', clusterIPs: ['10.96.0.1'], ports: [{ port: 80 }], externalTrafficPolicy: 'Local' },
      ...{ healthCheckNodePort: port, ...spec },
    },
  };
}

type Endpoint = EndpointSlice['endpoints'][number];
const at = (address: string, node: string, conditions: Endpoint['conditions'] = { ready: true }): Endpoint => ({
  ...{ addresses: [address], nodeName: node, conditions },
});

async function apply(object: Service | undefined, endpoints: readonly Endpoint[]): Promise<void> {
  const { objects, slices } = tables;
  const metadata = { name: 'web-1', namespace: 'ns', labels: { 'kubernetes.io/service-name': 'web' } };
  const slice: EndpointSlice = {
    ...{ apiVersion: 'discovery.k8s.io/v1', kind: 'EndpointSlice', metadata, addressType: 'IPv4', endpoints },
    ports: [{ port: 80 }],
  };
  db.write([objects, slices], (txn) => {
    txn.deleteAll(objects);
    if (object !== undefined) for (const row of serviceObjectParts(object).values()) txn.upsert(objects, row);
    for (const row of sliceParts(slice).values()) txn.upsert(slices, row);
  });
  await health.settled();
}

async function ask(to: number, path = '/'): Promise<[status: number, body: unknown, weight: string | null]> {
  const response = await fetch(`http://${HOST}:${to}${path}`);
  const text = await response.text();
  const body: unknown = text === '' ? undefined : JSON.parse(text);
  return [response.status, body, response.headers.get('x-load-balancing-endpoint-weight')];
}

beforeEach(async () => {
  db = createStateDB();
  tables = serviceTables(db);
  translates = true;
  port = await freePort();
  do healthz = await freePort();
  while (healthz === port);
  health = new ServiceHealth({
    ...{ db, tables, nodeName: 'n1', healthz: { host: HOST, port: healthz }, host: HOST },
    ...{ translates: () => translates, log: silent },
  });
  health.start();
  await health.settled();
});
afterEach(() => health.stop());

it('says how many addresses of this node are ready, and fails where none is', async () => {
  const body = (localEndpoints: number) => ({
    ...{ service: { namespace: 'ns', name: 'web' }, localEndpoints, serviceProxyHealthy: true },
  });
  await apply(service(), [at('10.0.0.1', 'n1'), at('10.0.0.2', 'n1'), at('10.0.0.3', 'n2')]);
  expect(await ask(port)).toEqual([200, body(2), '2']);
  const ending = { ready: false, serving: true, terminating: true };
  await apply(service(), [at('10.0.0.1', 'n1', ending), at('10.0.0.3', 'n2')]);
  expect(await ask(port)).toEqual([503, body(0), '0']);
});

it('fails while Services are not in the kernel', async () => {
  translates = false;
  await apply(service(), [at('10.0.0.1', 'n1')]);
  expect((await ask(port))[1]).toMatchObject({ localEndpoints: 1, serviceProxyHealthy: false });
  expect((await ask(port))[0]).toBe(503);
  expect((await ask(healthz, '/healthz'))[0]).toBe(503);
  translates = true;
  expect((await ask(healthz, '/healthz')).slice(0, 2)).toMatchObject([200, { nodeEligible: true }]);
  expect(await ask(healthz, '/metrics')).toEqual([404, undefined, null]);
});

it('its condition says why a node whose kernel has no tcx does not serve', () => {
  expect(healthCondition(health, true).read()).toEqual({ ok: true, message: 'served' });
  expect(healthCondition(health, false).read()).toEqual({ ok: false, message: expect.stringContaining('Linux 6.6') });
});

it('follows the port, and ends with the Service or its policy', async () => {
  await apply(service(), [at('10.0.0.1', 'n1')]);
  const other = await freePort();
  await apply(service({ healthCheckNodePort: other }), []);
  expect((await ask(other))[0]).toBe(503);
  await expect(ask(port)).rejects.toThrow();
  await apply(service({ healthCheckNodePort: other, externalTrafficPolicy: 'Cluster' }), []);
  await expect(ask(other)).rejects.toThrow();
  await apply(undefined, []);
  expect(health.failing()).toEqual([]);
});

it('a port that somebody has is named, and the others are served', async () => {
  await apply(service({ healthCheckNodePort: healthz }), [at('10.0.0.1', 'n1')]);
  expect(health.failing()).toEqual([{ name: 'ns/web', message: expect.stringContaining('EADDRINUSE') }]);
  expect(healthCondition(health, true).read().message).toContain('end kube-proxy where it still runs');
  expect((await ask(healthz, '/healthz'))[0]).toBe(200);
});

it('answers beside those who open connections and ask nothing', async () => {
  const idle = await Promise.all(
    Array.from({ length: 200 }, async () => {
      const socket = connect(healthz, HOST).on('error', () => undefined);
      await once(socket, 'connect');
      return socket;
    }),
  );
  expect((await ask(healthz, '/healthz'))[0]).toBe(200);
  for (const socket of idle) socket.destroy();
});
