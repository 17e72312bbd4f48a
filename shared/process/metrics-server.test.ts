import { mkdir, mkdtemp, readFile, rm, unlink, writeFile } from 'node:fs/promises';
import { request as plainRequest } from 'node:http';
import { request } from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createServer, type Server, type TLSSocket } from 'node:tls';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { Gauge, Registry } from 'prom-client';
import { eventually } from '../../test/eventually.ts';
import { MetricsServer, type MetricsServerOptions } from './metrics-server.ts';
import { makeCertificate } from './testing/certificates.ts';

let folder: string;
let log: { readonly level: string; readonly message: string; readonly fields: object }[];
let server: MetricsServer | undefined;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'weir-metrics-'));
  log = [];
});
afterEach(async () => {
  await server?.stop();
  server = undefined;
  await rm(folder, { recursive: true });
});

function start(more: Partial<MetricsServerOptions> = {}): Promise<void> {
  const at = (level: string) => (fields: object, message: string) => void log.push({ level, message, fields });
  const registry = new Registry();
  new Gauge({ name: 'weir_something', help: 'x', registers: [registry] }).set(7);
  server = new MetricsServer({
    host: '127.0.0.1',
    port: 0,
    certificates: folder,
    registry: () => registry,
    refusal: async (authorization) => (authorization === 'Bearer good' ? undefined : { status: 401, text: 'who?' }),
    log: { info: at('info'), error: at('error') },
    lookMs: 20,
    ...more,
  });
  return server.start();
}

interface Answer {
  readonly status: number;
  readonly text: string;
  readonly fingerprint: string;
}

/** One request on a connection of its own, by somebody who trusts these certificates. */
async function get(path: string, token = 'good', method = 'GET', ca?: string): Promise<Answer> {
  const trusted = ca ?? (await readFile(join(folder, 'tls.crt'), 'utf8'));
  return new Promise((resolve, reject) => {
    const sent = request(
      {
        ...{ host: '127.0.0.1', port: server?.port, servername: 'localhost', ca: trusted, agent: false, method, path },
        headers: token === '' ? {} : { authorization: `Bearer ${token}` },
      },
      (response) => {
        const { fingerprint256: fingerprint } = (response.socket as TLSSocket).getPeerCertificate();
        let text = '';
        response.setEncoding('utf8').on('data', (chunk: string) => {
          text += chunk;
        });
        response.on('end', () => resolve({ status: response.statusCode ?? 0, text, fingerprint }));
      },
    );
    sent.on('error', reject);
    sent.end();
  });
}

const errors = () => log.filter(({ level }) => level === 'error');

describe('MetricsServer', () => {
  it('tells who may have them the metrics, by TLS, and nothing else to anybody', async () => {
    await makeCertificate(folder);
    await start();
    expect(await get('/metrics')).toMatchObject({ status: 200, text: expect.stringContaining('weir_something 7') });
    for (const path of ['/metrics', '/healthz', '/'])
      expect(await get(path, 'bad')).toMatchObject({ status: 401, text: 'who?\n' });
    expect((await get('/metrics', '')).status).toBe(401);
    expect((await get('/healthz')).status).toBe(404);
    expect((await get('/metrics', 'good', 'POST')).status).toBe(405);
    expect(errors()).toEqual([]);
  });

  it('is never plain', async () => {
    await makeCertificate(folder);
    await start();
    const plain = new Promise((resolve, reject) => {
      const sent = plainRequest({ host: '127.0.0.1', port: server?.port, path: '/metrics' }, resolve);
      sent.on('error', reject);
      sent.end();
    });
    await expect(plain).rejects.toThrow();
    expect((await get('/metrics')).status).toBe(200);
  });

  it('opens no port without a certificate, names the file, and opens it when there is one', async () => {
    await start();
    expect(server?.port).toBeUndefined();
    expect(errors()).toMatchObject([{ fields: { error: expect.stringContaining(join(folder, 'tls.crt')) } }]);
    // Half of it is none.
    const elsewhere = join(folder, 'elsewhere');
    await mkdir(elsewhere);
    const other = await makeCertificate(elsewhere);
    await writeFile(join(folder, 'tls.crt'), other);
    await eventually(
      async () => errors().length,
      (count) => count === 2,
    );
    expect(errors()[1]).toMatchObject({ fields: { error: expect.stringContaining(join(folder, 'tls.key')) } });
    await writeFile(join(folder, 'tls.key'), '');
    await eventually(
      async () => errors().length,
      (count) => count === 3,
    );
    expect(errors()[2]).toMatchObject({ fields: { error: `${join(folder, 'tls.key')} is empty` } });
    expect(server?.port).toBeUndefined();
    await makeCertificate(folder);
    await eventually(async () => server?.port, Boolean);
    expect((await get('/metrics')).status).toBe(200);
    // Said once each, however often it was looked at.
    expect(errors()).toHaveLength(3);
  });

  it('takes a new certificate from its files, and keeps the old one while they are wrong', async () => {
    const first = await makeCertificate(folder);
    await start();
    const before = (await get('/metrics')).fingerprint;
    await writeFile(join(folder, 'tls.key'), 'no key');
    await eventually(
      async () => errors().length,
      (count) => count > 0,
    );
    expect((await get('/metrics', 'good', 'GET', first)).fingerprint).toBe(before);
    await unlink(join(folder, 'tls.key'));
    await eventually(
      async () => errors().length,
      (count) => count > 1,
    );
    expect((await get('/metrics', 'good', 'GET', first)).fingerprint).toBe(before);
    const second = await makeCertificate(folder);
    await eventually(
      () => get('/metrics', 'good', 'GET', `${first}${second}`),
      ({ fingerprint }) => fingerprint !== before,
    );
  });

  it('a key of another certificate is refused by name', async () => {
    await makeCertificate(folder);
    const key = await readFile(join(folder, 'tls.key'));
    await makeCertificate(folder);
    await writeFile(join(folder, 'tls.key'), key);
    await start();
    expect(server?.port).toBeUndefined();
    expect(errors()).toMatchObject([{ fields: { error: expect.stringContaining(folder) } }]);
  });

  it('waits for a port that another process has', async () => {
    await makeCertificate(folder);
    const other: Server = createServer();
    await new Promise<void>((resolve) => other.listen(0, '127.0.0.1', resolve));
    const { port } = other.address() as { readonly port: number };
    await start({ port });
    expect(errors()).toMatchObject([
      { fields: { address: `127.0.0.1:${port}`, error: expect.stringContaining('EADDRINUSE') } },
    ]);
    await new Promise((resolve) => other.close(resolve));
    await eventually(
      async () => server?.port,
      (now) => now === port,
    );
    expect((await get('/metrics')).status).toBe(200);
  });

  it('answers 500 and goes on when it cannot be told who asks', async () => {
    await makeCertificate(folder);
    await start({ refusal: () => Promise.reject(new Error('a defect')) });
    expect(await get('/metrics')).toMatchObject({ status: 500 });
    expect(errors()).toHaveLength(1);
    expect(await get('/metrics')).toMatchObject({ status: 500 });
  });
});
