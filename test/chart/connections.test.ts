/**
 * The two programs of helm test: what the peers answer, and how the runner judges what they answer. That both prove an
 * allow and a deny in a cluster is for the tests on a real one.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, get, type Server } from 'node:http';
import { createServer as createHttpsServer } from 'node:https';
import { type AddressInfo, connect, createServer as createTcpServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from '@jest/globals';
import { loadAll } from 'js-yaml';
import { attempt, run } from '../cluster/run.ts';
import { CHART, find, podSpec, type Rendered, render } from './render.ts';

const script = (name: string): string => readFileSync(join(CHART, 'files/test', name), 'utf8').trim();
const ARGS = ['--input-type=module', '--eval'];

const closers: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

async function listening(server: Server | ReturnType<typeof createTcpServer>, host: string, port = 0): Promise<number> {
  server.listen(port, host);
  await once(server, 'listening');
  closers.push(() => {
    if ('closeAllConnections' in server) server.closeAllConnections();
    return new Promise((resolve) => server.close(resolve));
  });
  return (server.address() as AddressInfo).port;
}

/** A port that nobody listens on. */
async function freePort(): Promise<number> {
  const server = createTcpServer();
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return port;
}

/** A port where the kernel drops what asks for a connection: its listener stands still, and its queue is full. */
async function silentPort(): Promise<number> {
  const listen =
    "import('node:net').then(({ createServer }) => { const s = createServer(); s.listen({ host: '127.0.0.1', port: 0, backlog: 1 }, () => console.log(s.address().port)); });";
  const listener = spawn(process.execPath, ['--eval', listen], { stdio: ['ignore', 'pipe', 'inherit'] });
  closers.push(() => listener.kill('SIGKILL'));
  const [line] = (await once(listener.stdout, 'data')) as [Buffer];
  listener.kill('SIGSTOP');
  const port = Number(line.toString());
  // A queue of length 1 holds 2 (tcp(7), listen(2)).
  for (let at = 0; at < 2; at++) {
    const socket = connect({ host: '127.0.0.1', port });
    socket.on('error', () => undefined);
    closers.push(() => socket.destroy());
    await once(socket, 'connect');
  }
  return port;
}

function ask(port: number, path: string): Promise<string> {
  return new Promise((resolve, reject) => {
    get({ host: '127.0.0.1', port, path, agent: false }, (response) => {
      let text = '';
      response.setEncoding('utf8').on('data', (part: string) => {
        text += part;
      });
      response.on('end', () => resolve(`${response.statusCode} ${text}`));
    }).on('error', reject);
  });
}

describe('a peer of helm test', () => {
  let control: number;
  let port: number;
  let child: ChildProcess;
  beforeAll(async () => {
    control = await freePort();
    port = await freePort();
    child = spawn(process.execPath, [...ARGS, script('peer.mjs')], {
      env: {
        ...process.env,
        WEIR_TEST_LISTEN: '127.0.0.1',
        WEIR_TEST_PORTS: String(port),
        WEIR_TEST_CONTROL: String(control),
      },
    });
    for (;;) {
      const answer = await ask(control, '/').catch(() => '');
      if (answer.startsWith('404')) return;
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  });
  afterAll(async () => {
    const ended = once(child, 'exit');
    child.kill('SIGTERM');
    expect(await ended).toEqual([0, null]);
  });

  it('connects where it is told and says so', async () => {
    expect(await ask(control, `/connect?host=127.0.0.1&port=${port}`)).toBe('200 connected');
  });

  it('tells a port that nobody listens on from one that does not answer', async () => {
    expect(await ask(control, `/connect?host=127.0.0.1&port=${await freePort()}`)).toBe('200 ECONNREFUSED');
    expect(await ask(control, `/connect?host=127.0.0.1&port=${await silentPort()}`)).toBe('200 timeout');
  });

  it('does nothing else', async () => {
    expect(await ask(control, '/connect?host=127.0.0.1')).toMatch(/^404 /);
    expect(await ask(control, '/other')).toMatch(/^404 /);
  });
});

type Answers = Readonly<Record<string, string>>;
const GOOD: Answers = { 'allowed 8080': 'connected', 'denied 8080': 'timeout', 'denied 8081': 'connected' };
const ROLES = { server: '127.0.0.1', allowed: '127.0.0.2', denied: '127.0.0.3' };

describe('the runner of helm test', () => {
  let account: string;
  beforeAll(async () => {
    account = mkdtempSync(join(tmpdir(), 'weir-helm-test-'));
    await run('openssl', [
      ...['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '2'],
      ...['-subj', '/CN=127.0.0.1', '-addext', 'subjectAltName=IP:127.0.0.1'],
      ...['-keyout', join(account, 'key'), '-out', join(account, 'ca.crt')],
    ]);
    writeFileSync(join(account, 'namespace'), 'here');
    writeFileSync(join(account, 'token'), 'secret\n');
  });
  afterAll(() => rmSync(account, { recursive: true }));

  /** Runs it against peers that answer as told; `answers` may change with the number of the question. */
  async function judge(
    answers: (asked: number) => Answers,
    options: { readonly timeout?: string; readonly roles?: readonly (keyof typeof ROLES)[] } = {},
  ): Promise<{ code: number; stdout: string; requests: string[] }> {
    const requests: string[] = [];
    let asked = 0;
    let control = 0;
    for (const role of ['allowed', 'denied'] as const) {
      const peer = createServer((request, response) => {
        const url = new URL(request.url ?? '', 'http://peer');
        expect(url.searchParams.get('host')).toBe(ROLES.server);
        asked += 1;
        response.end(answers(Math.ceil(asked / 3))[`${role} ${url.searchParams.get('port')}`]);
      });
      control = await listening(peer, ROLES[role], control);
    }
    const pod = (role: string, status: object, metadata: object = {}): object => ({
      metadata: { labels: { 'weir.dev/test-role': role }, ...metadata },
      status,
    });
    const api = createHttpsServer(
      { key: readFileSync(join(account, 'key')), cert: readFileSync(join(account, 'ca.crt')) },
      (request, response) => {
        requests.push(`${request.method} ${request.url} ${request.headers.authorization}`);
        const items = (options.roles ?? (['server', 'allowed', 'denied'] as const)).map((role) =>
          pod(role, { phase: 'Running', podIP: ROLES[role] }),
        );
        // Of the test before: ended, or about to.
        items.push(pod('server', { phase: 'Failed', podIP: '127.0.0.9' }));
        items.push(pod('server', { phase: 'Running', podIP: '127.0.0.9' }, { deletionTimestamp: 'now' }));
        response.end(JSON.stringify({ items }));
      },
    );
    const port = await listening(api, '127.0.0.1');
    const { code, stdout, stderr } = await attempt(process.execPath, [...ARGS, script('runner.mjs')], {
      env: {
        KUBERNETES_SERVICE_HOST: '127.0.0.1',
        KUBERNETES_SERVICE_PORT: String(port),
        WEIR_TEST_ACCOUNT: account,
        WEIR_TEST_CONTROL: String(control),
        WEIR_TEST_TIMEOUT: options.timeout ?? '30',
      },
    });
    expect(stderr).toBe('');
    return { code, stdout, requests };
  }

  it('passes when one is connected and the other is dropped, three times', async () => {
    const { code, stdout, requests } = await judge(() => GOOD);
    expect(code).toBe(0);
    expect(stdout).toContain('ok: what the policy allows is connected');
    expect(requests).toHaveLength(3);
    expect(requests[0]).toBe(
      'GET /api/v1/namespaces/here/pods?labelSelector=app.kubernetes.io%2Fname%3Dweir-test-peer Bearer secret',
    );
  });

  it('waits for the policy, and starts to count again when a round is not so', async () => {
    const open = { ...GOOD, 'denied 8080': 'connected' };
    const { code, requests } = await judge((round) => (round === 1 || round === 3 ? open : GOOD));
    expect(code).toBe(0);
    expect(requests).toHaveLength(6);
  });

  it.each([
    [
      'the policy is not enforced',
      { 'denied 8080': 'connected' },
      'WRONG denied -> server:8080 connected; expected timeout',
    ],
    ['the allowed connection is dropped too', { 'allowed 8080': 'timeout' }, 'WRONG allowed -> server:8080 timeout'],
    ['nothing reaches the server', { 'denied 8081': 'timeout' }, 'WRONG denied -> server:8081 timeout'],
    [
      'nobody listens, which is no denial',
      { 'denied 8080': 'ECONNREFUSED' },
      'WRONG denied -> server:8080 ECONNREFUSED',
    ],
  ])('fails when %s', async (_, change, words) => {
    const { code, stdout } = await judge(() => ({ ...GOOD, ...change }), { timeout: '0.2' });
    expect(code).toBe(1);
    expect(stdout).toContain('FAILED');
    expect(stdout).toContain(words);
  });

  it('fails naming the pods that are not there', async () => {
    const { code, stdout } = await judge(() => GOOD, { timeout: '0.2', roles: ['server'] });
    expect(code).toBe(1);
    expect(stdout).toContain('waiting for the pods: allowed, denied');
  });
});

describe('helm test', () => {
  let rendered: readonly Rendered[];
  beforeAll(async () => {
    rendered = await render();
  });

  it('runs these programs, told what they need', () => {
    const command = (name: string, kind = 'Deployment'): readonly string[] =>
      (podSpec(find(rendered, kind, name))?.containers[0]?.command ?? []).map((arg) => arg.trim());
    expect(command('weir-test', 'Pod')).toEqual(['node', ...ARGS, script('runner.mjs')]);
    for (const role of Object.keys(ROLES)) {
      expect(command(`weir-test-${role}`)).toEqual(['node', ...ARGS, script('peer.mjs')]);
    }
  });

  it('is of two hooks of one name, so that helm test --logs finds the log of a pod for each', async () => {
    const { stdout } = await run('helm', [
      'template',
      'weir',
      CHART,
      '-n',
      'kube-system',
      '--set',
      'crds.install=false',
    ]);
    const weight = (hook: Rendered): number => Number(hook.metadata.annotations?.['helm.sh/hook-weight']);
    const hooks = (loadAll(stdout) as (Rendered | null)[])
      .flatMap((each) => (each?.metadata?.annotations?.['helm.sh/hook'] === 'test' ? [each] : []))
      .sort((one, other) => weight(one) - weight(other));
    expect(hooks.map((hook) => `${hook.kind}/${hook.metadata.name}`)).toEqual(['List/weir-test', 'Pod/weir-test']);
    expect(weight(hooks[0] as Rendered)).toBeLessThan(weight(hooks[1] as Rendered));
  });
});
