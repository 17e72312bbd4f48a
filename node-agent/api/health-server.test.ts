import { Server } from 'node:net';
import { afterEach, describe, expect, it, jest } from '@jest/globals';
import { eventually } from '../../test/eventually.ts';
import { callMetrics } from '../cni/part.ts';
import { routeMetrics } from '../routing/part.ts';
import { FakeCore, quiet, recordingLogger } from '../testing/fake-core.ts';
import { HealthServer, type HealthServerOptions } from './health-server.ts';
import { createMetrics } from './metrics.ts';

const servers: HealthServer[] = [];
afterEach(async () => {
  for (const server of servers.splice(0)) await server.stop();
});

function make(options: Partial<HealthServerOptions>): HealthServer {
  const server = new HealthServer({ log: quiet, host: '127.0.0.1', port: 0, ...options });
  servers.push(server);
  return server;
}
const registryOf = (core: FakeCore) => createMetrics({ core, version: '1.2.3' });
const ok = (): { ok: boolean; message: string } => ({ ok: true, message: 'OK' });

async function get(server: HealthServer, path: string): Promise<{ status: number; text: string }> {
  const response = await fetch(`http://127.0.0.1:${server.port}${path}`);
  return { status: response.status, text: await response.text() };
}

describe('HealthServer', () => {
  it('tells liveness from readiness', async () => {
    const core = new FakeCore();
    const message = 'waiting for the first complete list of nodes';
    const server = make({ health: { core, ready: () => ({ ok: false, message }) } });
    await server.start();
    expect(await get(server, '/healthz')).toEqual({ status: 200, text: 'ok datapath: attached\n' });
    expect(await get(server, '/readyz')).toEqual({ status: 503, text: `${message}\n` });
    core.healthy = false;
    expect((await get(server, '/healthz')).status).toBe(503);
    expect(await get(server, '/metrics')).toEqual({ status: 404, text: 'here is only /healthz, /readyz\n' });
  });

  it.each(['inputs', 'kernel'])('is alive while it waits for others: %s', async (name) => {
    const core = new FakeCore();
    core.health = () => ({ ok: false, checks: [{ name, ok: false, message: 'not yet' }] });
    const server = make({ health: { core, ready: () => ({ ok: false, message: 'not yet' }) } });
    await server.start();
    expect(await get(server, '/healthz')).toEqual({ status: 200, text: `FAILED ${name}: not yet\n` });
  });

  it('is alive when there is nothing left to do', async () => {
    const core = new FakeCore();
    core.healthy = false;
    const idle = (): string => 'Weir has been removed';
    const server = make({ health: { core, ready: () => ({ ok: false, message: idle() }), idle } });
    await server.start();
    expect(await get(server, '/healthz')).toEqual({ status: 200, text: 'Weir has been removed\n' });
    expect(await get(server, '/readyz')).toEqual({ status: 503, text: 'Weir has been removed\n' });
  });

  it('gives a page of another origin nothing to read, and serves nothing but its paths', async () => {
    const core = new FakeCore();
    const server = make({ metrics: registryOf(core), health: { core, ready: ok } });
    await server.start();
    const url = `http://127.0.0.1:${server.port}`;
    for (const method of ['GET', 'OPTIONS', 'POST'])
      for (const path of ['/healthz', '/readyz', '/metrics']) {
        const headers = { origin: 'http://evil.example', 'access-control-request-method': 'GET' };
        const response = await fetch(`${url}${path}`, { method, headers });
        expect([...response.headers.keys()].filter((name) => name.startsWith('access-control-'))).toEqual([]);
      }
    for (const path of ['/', '/v1/endpoint', '/debug/pprof', '/config', '/../metrics/x', '/%2e%2e/etc/passwd'])
      expect((await get(server, path)).status).toBe(404);
  });

  it('serves metrics apart from probes', async () => {
    const metrics = registryOf(new FakeCore());
    const server = make({ metrics });
    await server.start();
    expect((await get(server, '/metrics')).status).toBe(200);
    expect((await get(server, '/healthz')).status).toBe(404);
  });

  it('says that its port is taken, and listens once it is free', async () => {
    const health = { core: new FakeCore(), ready: ok };
    const first = make({ health });
    await first.start();
    const log = recordingLogger();
    const { port } = first;
    const second = make({ log, metrics: registryOf(new FakeCore()), port, retryMs: 10, flag: '--metrics-address' });
    await second.start();
    const fields = { flag: '--metrics-address', address: `127.0.0.1:${port}` };
    expect(log.lines).toMatchObject([{ level: 'error', fields }]);
    await first.stop();
    await eventually(
      () => get(second, '/metrics').catch(() => ({ status: 0 })),
      ({ status }) => status === 200,
    );
    expect(log.lines).toMatchObject([{ level: 'error' }, { level: 'info', fields }]);
    // Who never gets it stops as well.
    const third = make({ health, port });
    await third.start();
    await third.stop();
  });

  it('goes on when a connection cannot be accepted, and says so', async () => {
    // Which server it is shows where it begins to listen: too many open files, say, are the machine's, and cannot be had here.
    const listen = jest.spyOn(Server.prototype, 'listen');
    const log = recordingLogger();
    const server = make({ log, health: { core: new FakeCore(), ready: ok } });
    await server.start();
    const [inner] = listen.mock.contexts;
    listen.mockRestore();
    const refused = Object.assign(new Error('accept EMFILE'), { code: 'EMFILE' });
    (inner as Server).emit('error', refused);
    expect(log.lines).toMatchObject([{ level: 'error', fields: { flag: '--health-address', err: refused } }]);
    expect((await get(server, '/readyz')).status).toBe(200);
  });

  it('refuses an address that is not of this machine', async () => {
    const server = make({ health: { core: new FakeCore(), ready: ok }, host: '192.0.2.1' });
    await expect(server.start()).rejects.toThrow('cannot listen on --health-address 192.0.2.1:0');
  });
});

describe('createMetrics', () => {
  it('shows the datapath to Prometheus, the same at every scrape', async () => {
    const registry = registryOf(new FakeCore());
    for (let scrape = 0; scrape < 2; scrape++) {
      const text = await registry.metrics();
      expect(text).toContain('weir_datapath_packets_total{reason="policy",direction="ingress"} 3\n');
      expect(text).toContain('weir_bpf_map_entries{map="endpoints"} 1\n');
      expect(text).toContain('weir_agent_bpf_map_capacity{map="endpoints"} 4096\n');
      expect(text).toContain('weir_agent_peers_spent 1\n');
    }
  });

  it('shows the agent as a process, with its event loop', async () => {
    const text = await registryOf(new FakeCore()).metrics();
    expect(text).toMatch(/^nodejs_eventloop_lag_max_seconds \d/m);
    expect(text).toMatch(/^process_resident_memory_bytes \d/m);
  });

  it('shows what the agent is at', async () => {
    const core = new FakeCore();
    const registry = createMetrics({ core, version: '1.2.3' });
    const cniCall = callMetrics(registry);
    const failing = [{ node: 'n2', prefix: '10.1.0.0/24', message: '' }];
    routeMetrics({ status: () => ({ ok: false, message: '', wanted: 3, failing }) }, registry);
    await core.upsertEndpoint({ id: 7, ifindex: 3, interfaceName: 'x', addresses: ['10.1.0.7'], createdAt: '' });
    core.importRules([{ endpointSelector: {} }]);
    core.importRules([{ endpointSelector: {} }]);
    core.setRealised({
      revision: 1,
      failures: [
        { uid: 'u', generation: 1, reason: 'R', message: 'm' },
        { uid: 'u', generation: 2, reason: 'R', message: 'm' },
      ],
    });
    cniCall({ command: 'ADD', ok: true, seconds: 0.2 });
    cniCall({ command: 'ADD', ok: false, seconds: 40 });
    const text = await registry.metrics();
    for (const line of [
      `weir_agent_build_info{version="1.2.3",node_version="${process.versions.node}"} 1`,
      'weir_endpoints{state="ready"} 1',
      'weir_agent_endpoint_regenerations_total 1',
      'weir_agent_policy_revision_lag 2',
      'weir_agent_policy_failures 1',
      'weir_agent_healthy 1',
      'weir_agent_enforcement_repairs_total{part="endpoint"} 2',
      'weir_agent_comparison_timestamp_seconds{part="address"} 1767323045',
      'weir_agent_comparison_duration_seconds{part="address"} 1.5',
      'weir_agent_routes 3',
      'weir_agent_route_errors 1',
      'weir_agent_cni_duration_seconds_bucket{le="0.25",command="ADD",result="ok"} 1',
      'weir_agent_cni_duration_seconds_bucket{le="30",command="ADD",result="error"} 0',
      'weir_agent_cni_duration_seconds_count{command="ADD",result="error"} 1',
    ])
      expect(text).toContain(`${line}\n`);
  });
});
