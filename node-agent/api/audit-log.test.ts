import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmod, mkdtemp, rm, unlink } from 'node:fs/promises';
import { request as httpRequest } from 'node:http';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import fc from 'fast-check';
import fastify from 'fastify';
import { eventually } from '../../test/eventually.ts';
import { cniRoute } from '../cni/part.ts';
import type { CniAnswer } from '../cni/types.ts';
import { agentView } from '../testing/agent-view.ts';
import { FakeCore, recordingLogger } from '../testing/fake-core.ts';
import { call } from '../testing/request.ts';
import { auditCalls } from './audit-log.ts';
import { ApiServer } from './server.ts';

const ENDPOINT = {
  state: 'waiting-for-identity',
  'interface-name': 'lxc1',
  'interface-index': 7,
  'container-id': 'c0ffee',
  'k8s-namespace': 'shop',
  'k8s-pod-name': 'web',
  addressing: { ipv4: '10.1.0.5' },
};
const rule = (...labels: readonly unknown[]) => ({ labels, endpointSelector: {} });
/** The caller is this process. */
const ME = { uid: process.getuid?.(), gid: process.getgid?.(), pid: process.pid };

let folder: string;
let socket: string;
let core: FakeCore;
let log: ReturnType<typeof recordingLogger>;
let server: ApiServer;
let cniAnswer: CniAnswer;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'weir-audit-'));
  socket = join(folder, 'weir.sock');
  core = new FakeCore();
  log = recordingLogger();
  cniAnswer = { ok: true };
  server = new ApiServer({
    socket,
    socketLookMs: 20,
    core,
    flows: core,
    log,
    version: '0.0.1',
    nodeName: 'n1',
    clusterName: 'default',
    kubernetes: false,
    agent: agentView({ routes: (app) => cniRoute(app, () => Promise.resolve(cniAnswer)) }),
    detach: () => Promise.resolve(false),
    interfaceIndex: () => Promise.resolve(42),
    podCidrs: () => ['10.1.0.0/24'],
  });
  await server.start();
});
afterEach(async () => {
  await server.stop();
  await rm(folder, { recursive: true });
});

const audited = () => log.lines.filter(({ fields }) => 'audit' in fields);

/** Waits for so many lines, and returns their fields. */
async function lines(count: number): Promise<readonly object[]> {
  await eventually(
    async () => audited().length,
    (have) => have >= count,
  );
  expect(audited()).toHaveLength(count);
  for (const { level, message, fields } of audited()) {
    expect({ level, message }).toEqual({ level: 'info', message: 'call on the socket' });
    expect(fields).toMatchObject({ audit: true });
  }
  return audited().map(({ fields }) => fields);
}

const cni = (command: string) => ({
  env: {
    CNI_COMMAND: command,
    CNI_CONTAINERID: 'c1',
    CNI_IFNAME: 'eth0',
    CNI_NETNS: '/run/netns/x',
    CNI_ARGS: 'IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web;K8S_POD_UID=u1',
  },
  stdin: '{"cniVersion":"1.0.0"}',
});

describe('a call that writes', () => {
  it('is one line each: who, what, and the answer', async () => {
    await call(socket, 'PUT', '/policy?replace=true', [rule({ key: 'a', value: '1' }, 'k8s:b'), rule('k8s:b'), rule()]);
    await call(socket, 'PUT', '/policy?replace-with-labels=unspec:a=1', rule({ key: 'a', value: '1', source: 'k8s' }));
    await call(socket, 'DELETE', '/policy?labels=k8s:a=1');
    await call(socket, 'DELETE', '/policy', ['k8s:b']);
    await call(socket, 'PUT', '/endpoint/0', ENDPOINT);
    await call(socket, 'DELETE', '/endpoint/cilium-local:1');
    await call(socket, 'DELETE', '/endpoint', { 'container-id': 'c0ffee' });
    await call(socket, 'POST', '/cni', cni('ADD'));
    const common = { audit: true, ...ME };
    expect(await lines(8)).toEqual([
      {
        ...common,
        method: 'PUT',
        route: '/v1/policy',
        status: 200,
        rules: 3,
        labels: ['a=1', 'k8s:b'],
        replace: 'true',
      },
      {
        ...common,
        method: 'PUT',
        route: '/v1/policy',
        status: 200,
        rules: 1,
        labels: ['k8s:a=1'],
        replaceWithLabels: ['unspec:a=1'],
      },
      {
        ...common,
        method: 'DELETE',
        route: '/v1/policy',
        status: 404,
        labels: ['k8s:a=1'],
        error: expect.stringContaining('k8s:a=1'),
      },
      { ...common, method: 'DELETE', route: '/v1/policy', status: 404, labels: ['k8s:b'], error: expect.anything() },
      {
        ...common,
        method: 'PUT',
        route: '/v1/endpoint/:id',
        status: 201,
        endpoint: '0',
        interface: 'lxc1',
        ipv4: '10.1.0.5',
        container: 'c0ffee',
        pod: 'shop/web',
      },
      { ...common, method: 'DELETE', route: '/v1/endpoint/:id', status: 200, endpoint: 'cilium-local:1' },
      {
        ...common,
        method: 'DELETE',
        route: '/v1/endpoint',
        status: 404,
        container: 'c0ffee',
        error: expect.anything(),
      },
      {
        ...common,
        method: 'POST',
        route: '/v1/cni',
        status: 204,
        command: 'ADD',
        container: 'c1',
        interface: 'eth0',
        netns: '/run/netns/x',
        args: cni('').env.CNI_ARGS,
      },
    ]);
  });

  it('has a line also when it is refused, wherever that happens', async () => {
    await call(socket, 'PUT', '/policy', '{');
    await call(socket, 'PUT', '/policy', [{}]);
    await call(socket, 'PUT', '/policy');
    await call(socket, 'PUT', '/nowhere?x=1', {});
    await call(socket, 'DELETE', '/endpoint/%zz');
    await call(socket, 'DELETE', `/endpoint/${'x'.repeat(600)}`);
    await call(socket, 'PATCH', '/policy', {});
    await call(socket, 'POST', '/cni', { env: [] });
    cniAnswer = { ok: false, body: { cniVersion: '1.0.0', code: 11, msg: 'later', details: '' } };
    await call(socket, 'POST', '/cni', cni('DEL'));
    expect(await lines(9)).toMatchObject([
      { method: 'PUT', route: '/v1/policy', status: 400, error: expect.stringContaining('not JSON') },
      {
        method: 'PUT',
        route: '/v1/policy',
        status: 400,
        rules: 1,
        error: expect.stringContaining('nothing was imported'),
      },
      { method: 'PUT', route: '/v1/policy', status: 400, error: 'the body is empty; send a JSON list of rules' },
      { method: 'PUT', url: '/v1/nowhere?x=1', status: 404 },
      { method: 'DELETE', url: '/v1/endpoint/%zz', status: 400 },
      { method: 'DELETE', url: expect.stringMatching(/^\/v1\/endpoint\/x+…$/), status: expect.any(Number) },
      { method: 'PATCH', url: '/v1/policy', status: 404 },
      { method: 'POST', route: '/v1/cni', command: 'other', status: expect.any(Number) },
      { method: 'POST', route: '/v1/cni', command: 'DEL', status: 500, error: expect.stringContaining('later') },
    ]);
  });

  it('has a line also when its caller does not wait for the answer', async () => {
    let release = (): void => undefined;
    core.beforeEnforce = () =>
      new Promise<void>((resolve) => {
        release = resolve;
      });
    const body = JSON.stringify(ENDPOINT);
    const client = connect(socket);
    client.write(`PUT /v1/endpoint/0 HTTP/1.1\r\nhost: x\r\ncontent-length: ${body.length}\r\n\r\n${body}`);
    await eventually(
      async () => core.calls.length,
      (calls) => calls > 0,
    );
    const gone = once(client, 'close');
    client.destroy();
    await gone;
    release();
    expect(await lines(1)).toMatchObject([{ ...ME, status: 201, endpoint: '0' }]);
  });

  it('has a line also over a socket that was made again', async () => {
    await unlink(socket);
    await eventually(
      () => call(socket, 'DELETE', '/policy').catch(() => ({ status: 0 })),
      ({ status }) => status === 200,
    );
    expect(await lines(1)).toMatchObject([{ ...ME, method: 'DELETE' }]);
  });

  it('is of the process and the user that connected', async () => {
    await chmod(folder, 0o755);
    await chmod(socket, 0o666);
    // It changes by itself: nobody else may be able to reach the program.
    const script = `
      process.setgid(65533);
      process.setuid(65534);
      require('node:http').request({ socketPath: ${JSON.stringify(socket)}, method: 'DELETE', path: '/v1/policy' }).end();`;
    const child = spawn(process.execPath, ['-e', script], { stdio: 'ignore' });
    await once(child, 'exit');
    expect(await lines(1)).toMatchObject([{ uid: 65534, gid: 65533, pid: child.pid }]);
  });

  it('is as short as a line can be, whatever the caller sends', async () => {
    const long = 'x'.repeat(100_000);
    const many = Array.from({ length: 50 }, (_, at) => rule(`l${at}`));
    await call(socket, 'PUT', '/policy', [rule(long), ...many]);
    await call(socket, 'PUT', `/policy?replace-with-labels=${'y'.repeat(5_000)}`, rule());
    for (const [at, fields] of (await lines(2)).entries()) {
      expect(JSON.stringify(fields).length).toBeLessThan(3_000);
      if (at === 0) expect(fields).toMatchObject({ rules: 51, labels: expect.arrayContaining(['… and 31 more']) });
    }
  });

  it('is answered whatever its body is', async () => {
    const any = fc.oneof(
      fc.json(),
      fc.jsonValue().map((labels) => JSON.stringify([{ endpointSelector: {}, labels }])),
    );
    const targets = [
      ['PUT', '/policy'],
      ['DELETE', '/policy'],
      ['PUT', '/endpoint/0'],
      ['DELETE', '/endpoint'],
      ['POST', '/cni'],
    ] as const;
    let count = 0;
    await fc.assert(
      fc.asyncProperty(fc.constantFrom(...targets), any, async ([method, path], body) => {
        const { status } = await call(socket, method, path, body);
        count += 1;
        expect((await lines(count)).at(-1)).toMatchObject({ method, status });
      }),
      { numRuns: 60 },
    );
  });
});

describe('a call that only reads', () => {
  it('has none', async () => {
    for (const path of ['/healthz', '/policy', '/endpoint', '/nowhere', '/table', '/endpoint/%zz'])
      await call(socket, 'GET', path);
    for (const command of ['CHECK', 'STATUS', 'VERSION']) await call(socket, 'POST', '/cni', cni(command));
    const head = httpRequest({ socketPath: socket, method: 'HEAD', path: '/v1/healthz', agent: false }).end();
    await once(head, 'response');
    await call(socket, 'DELETE', '/policy');
    expect(await lines(1)).toMatchObject([{ method: 'DELETE' }]);
  });
});

describe('a caller that the kernel does not tell', () => {
  it('is unknown, and the call has its line', async () => {
    const app = fastify();
    auditCalls(app, log);
    app.delete('/policy', { config: { audit: () => ({}) } }, () => 'done');
    // TCP knows no credentials.
    const address = await app.listen({ host: '127.0.0.1', port: 0 });
    try {
      expect((await fetch(`${address}/policy`, { method: 'DELETE' })).status).toBe(200);
      expect(await lines(1)).toMatchObject([{ uid: 'unknown', gid: 'unknown', pid: 'unknown', status: 200 }]);
    } finally {
      await app.close();
    }
  });
});

describe('a route that writes', () => {
  it('cannot be added without saying what of it is logged', () => {
    const app = fastify();
    auditCalls(app, log);
    expect(() => app.put('/new', () => 'done')).toThrow('PUT /new');
  });
});
