import { afterEach, describe, expect, it } from '@jest/globals';
import { FakeCore, quiet } from '../testing/fake-core.ts';
import { HealthServer } from './health-server.ts';
import { createMetrics } from './metrics.ts';

const servers: HealthServer[] = [];
afterEach(async () => {
  for (const server of servers.splice(0)) await server.stop();
});

function make(core: FakeCore, ready: { ok: boolean; message: string }, port = 0): HealthServer {
  const server = new HealthServer({
    core,
    log: quiet,
    metrics: createMetrics(core),
    ready: () => ready,
    host: '127.0.0.1',
    port,
  });
  servers.push(server);
  return server;
}
async function get(server: HealthServer, path: string): Promise<{ status: number; text: string }> {
  const response = await fetch(`http://127.0.0.1:${server.port}${path}`);
  return { status: response.status, text: await response.text() };
}

describe('HealthServer', () => {
  it('tells liveness from readiness', async () => {
    const core = new FakeCore();
    const server = make(core, { ok: false, message: 'waiting for the first complete list of nodes' });
    await server.start();
    expect(await get(server, '/healthz')).toEqual({ status: 200, text: 'ok datapath: attached\n' });
    expect(await get(server, '/readyz')).toEqual({
      status: 503,
      text: 'waiting for the first complete list of nodes\n',
    });
    core.healthy = false;
    expect((await get(server, '/healthz')).status).toBe(503);
    expect((await get(server, '/other')).status).toBe(404);
  });

  it('shows the datapath to Prometheus, the same at every scrape', async () => {
    const core = new FakeCore();
    const server = make(core, { ok: true, message: 'OK' });
    await server.start();
    for (let scrape = 0; scrape < 2; scrape++) {
      const { text } = await get(server, '/metrics');
      expect(text).toContain('weir_datapath_packets_total{reason="policy",direction="ingress"} 3\n');
      expect(text).toContain('weir_bpf_map_entries{map="endpoints"} 1\n');
    }
  });

  it('names the flag when its port is taken', async () => {
    const first = make(new FakeCore(), { ok: true, message: '' });
    await first.start();
    const second = make(new FakeCore(), { ok: true, message: '' }, first.port);
    await expect(second.start()).rejects.toThrow(`cannot listen on --health-address 127.0.0.1:${first.port}`);
    servers.pop();
  });
});
