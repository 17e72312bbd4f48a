import { mkdir, mkdtemp, readFile, rename, rm, unlink, writeFile } from 'node:fs/promises';
import { request as plainRequest } from 'node:http';
import { request } from 'node:https';
import { connect, type Socket } from 'node:net';
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
    log: { info: at('info'), warn: at('warn'), error: at('error') },
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
async function get(path: string, token = 'good', method = 'GET', ca?: string, localAddress?: string): Promise<Answer> {
  const trusted = ca ?? (await readFile(join(folder, 'tls.crt'), 'utf8'));
  return new Promise((resolve, reject) => {
    const sent = request(
      {
        ...{ host: '127.0.0.1', port: server?.port, servername: 'localhost', ca: trusted, agent: false, method, path },
        ...(localAddress === undefined ? {} : { localAddress }),
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
    // At once: one that is looked at while it is written is another fault.
    await writeFile(join(elsewhere, 'whole'), other);
    await rename(join(elsewhere, 'whole'), join(folder, 'tls.crt'));
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
    // Said once each, however often it was looked at. It may have been while the certificate was being written, too.
    const texts = errors().map(({ fields }) => JSON.stringify(fields));
    expect(texts).toEqual([...new Set(texts)]);
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

/** Of each who connects, an address of their own. */
const [FLOOD, SCRAPER, SILENT] = ['127.0.0.2', '127.0.0.3', '127.0.0.4'] as const;
/** A multiple of all places. */
const MANY = 200;
const HOUR_MS = 3_600_000;

describe('a port that somebody fills with connections', () => {
  let sockets: Set<Socket>;
  /** Whether connections of the flood that are closed are opened anew. */
  let again: boolean;
  beforeEach(async () => {
    [sockets, again] = [new Set(), false];
    await makeCertificate(folder);
  });
  afterEach(() => {
    again = false;
    for (const socket of sockets) socket.destroy();
  });

  /** A connection that says nothing. */
  function silent(localAddress: string): Promise<Socket> {
    const socket = connect({ host: '127.0.0.1', port: server?.port ?? 0, localAddress });
    sockets.add(socket);
    socket.on('error', () => undefined);
    socket.on('close', () => {
      sockets.delete(socket);
      if (again) setImmediate(() => again && silent(localAddress));
    });
    return new Promise((resolve) => socket.once('connect', () => resolve(socket)).once('close', () => resolve(socket)));
  }
  const flood = (): Promise<Socket[]> => Promise.all(Array.from({ length: MANY }, () => silent(FLOOD)));
  const scrape = (): Promise<Answer> => get('/metrics', 'good', 'GET', undefined, SCRAPER);

  it('answers a scraper from another address, however fast they come back, and says once who it is', async () => {
    await start();
    again = true;
    await flood();
    for (let times = 0; times < 5; times += 1) expect((await scrape()).status).toBe(200);
    const warnings = log.filter(({ level }) => level === 'warn');
    expect(warnings).toMatchObject([{ fields: { source: FLOOD } }]);
    again = false;
    await server?.stop();
    expect(log.filter(({ level }) => level === 'warn').slice(1)).toMatchObject([
      { fields: { leftOut: expect.any(Number) } },
    ]);
    expect(errors()).toEqual([]);
  });

  it('has so many at most, and closes one of whoever holds the most', async () => {
    await start({ handshakeMs: HOUR_MS });
    const other = await silent(SILENT);
    await flood();
    await eventually(
      async () => sockets.size,
      (count) => count === 64,
    );
    expect((await scrape()).status).toBe(200);
    expect(other.destroyed).toBe(false);
    // Nor does it wait for them when it stops.
    await server?.stop();
  });

  it('keeps who was let in, from whichever address', async () => {
    const [reached, released] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    class Slow extends Registry {
      override async metrics(): Promise<string> {
        reached.resolve();
        await released.promise;
        return 'late 1';
      }
    }
    await start({ registry: () => new Slow(), handshakeMs: HOUR_MS });
    const answer = get('/metrics', 'good', 'GET', undefined, FLOOD);
    await reached.promise;
    await flood();
    await eventually(
      async () => sockets.size,
      (count) => count === 63,
    );
    released.resolve();
    expect(await answer).toMatchObject({ status: 200, text: 'late 1' });
  });

  it('lets nobody wait long with the beginning of TLS', async () => {
    await start({ handshakeMs: 50, requestMs: HOUR_MS });
    const socket = await silent(SILENT);
    await eventually(async () => socket.destroyed, Boolean);
  });
});
