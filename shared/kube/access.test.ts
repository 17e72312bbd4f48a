import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import type { RequestOptions } from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from '@jest/globals';
import { KubeConfig } from '@kubernetes/client-node';
import fc from 'fast-check';
import { accessOf, type Prepared } from './access.ts';
import { KubeConfigError } from './errors.ts';

const folder = mkdtempSync(join(tmpdir(), 'weir-access-'));
afterAll(() => rmSync(folder, { recursive: true }));

function write(cluster: object, user: object | undefined): string {
  const path = join(folder, 'config');
  writeFileSync(
    path,
    JSON.stringify({
      clusters: [
        { name: 'other', cluster: { server: 'https://other' } },
        { name: 'c', cluster },
      ],
      users: user === undefined ? [] : [{ name: 'u', user }],
      contexts: [{ name: 'x', context: { cluster: 'c', user: 'u' } }],
      'current-context': 'x',
    }),
  );
  return path;
}

const judged = ({ server, options, proxied }: Prepared): unknown => ({
  server,
  proxied,
  headers: options.headers ?? {},
  certificates: [options.ca, options.cert, options.key],
  rejectUnauthorized: options.rejectUnauthorized ?? true,
  servername: options.servername,
});

/** What the library makes of the same file. */
async function byLibrary(path: string): Promise<Prepared> {
  const config = new KubeConfig();
  config.loadFromFile(path);
  const options: RequestOptions = {};
  await config.applyToHTTPSOptions(options);
  return { server: config.getCurrentCluster()?.server ?? '', options, proxied: false };
}

const data = fc.string({ minLength: 1 }).map((text) => Buffer.from(text).toString('base64'));
const some = <T>(arbitrary: fc.Arbitrary<T>): fc.Arbitrary<T | undefined> => fc.option(arbitrary, { nil: undefined });

describe('accessOf', () => {
  it('reads a self-contained kubeconfig as the library does', async () => {
    const cluster = fc.record({
      server: fc.constantFrom('https://192.0.2.1:6443', 'https://api.example/prefix'),
      'certificate-authority-data': some(data),
      'insecure-skip-tls-verify': some(fc.boolean()),
      'tls-server-name': some(fc.domain()),
    });
    const user = fc.record({
      token: some(fc.stringMatching(/^[A-Za-z0-9._-]{1,40}$/)),
      'client-certificate-data': some(data),
      'client-key-data': some(data),
    });
    await fc.assert(
      // Without a user the library forgets the cluster's TLS settings too; ours must not.
      fc.asyncProperty(cluster, user, async (c, u) => {
        const path = write(c, u);
        expect(judged(await accessOf(path).prepare())).toEqual(judged(await byLibrary(path)));
      }),
    );
  });

  it('leaves what it does not read to the library: files, exec plugins, passwords', async () => {
    const token = join(folder, 'token');
    // As echo writes it.
    writeFileSync(token, 'from-a-file\n');
    const file = write({ server: 'https://a' }, { 'auth-provider': { name: 'files', config: { tokenFile: token } } });
    expect((await accessOf(file).prepare()).options.headers).toEqual({ Authorization: 'Bearer from-a-file' });
    const named = write({ server: 'https://a' }, { token: 'in-the-file\n' });
    expect((await accessOf(named).prepare()).options.headers).toEqual({ Authorization: 'Bearer in-the-file' });
    const plugin = {
      apiVersion: 'client.authentication.k8s.io/v1',
      command: 'echo',
      args: [JSON.stringify({ status: { token: 'from-a-plugin' } })],
    };
    const exec = write({ server: 'https://a' }, { exec: plugin });
    expect((await accessOf(exec).prepare()).options.headers).toMatchObject({ Authorization: 'Bearer from-a-plugin' });
    const basic = write({ server: 'https://a' }, { username: 'me', password: 'secret' });
    expect((await accessOf(basic).prepare()).options.auth).toBe('me:secret');
    const proxy = write({ server: 'https://a', 'proxy-url': 'http://127.0.0.1:9' }, {});
    expect((await accessOf(proxy).prepare()).proxied).toBe(true);
  });

  it('refuses at once what cannot be used, naming the file', () => {
    expect(() => accessOf(join(folder, 'none'))).toThrow(KubeConfigError);
    const path = write({}, undefined);
    expect(() => accessOf(path)).toThrow(`kubeconfig "${path}" has no cluster with a server`);
    writeFileSync(path, '{');
    expect(() => accessOf(path)).toThrow(`cannot read kubeconfig "${path}"`);
    expect(() => accessOf(undefined)).toThrow('KUBERNETES_SERVICE_HOST is not set');
  });
});
