/** The CLI as a user runs it, for tests: a process, against the API with a fake core. */
import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { COMPILE_CACHE } from '../../test/compile-cache.ts';
import { BadRequestError, NotFoundError } from '../api/errors.ts';
import type { FlowExplanation } from '../api/models.ts';
import { ApiServer } from '../api/server.ts';
import type { EndpointStateRow } from '../tables.ts';
import { agentView } from './agent-view.ts';
import { FakeCore, quiet } from './fake-core.ts';

export const WEIR = join(dirname(fileURLToPath(import.meta.url)), '..', '..', 'bin', 'weir');

export let folder = '';
export let socket = '';
export let core: FakeCore;
let server: ApiServer;
/** What tests change of it. */
export const said: { resting: string | undefined; routing: { ok: boolean; message: string } } = {
  resting: undefined,
  routing: { ok: true, message: '2 routes to other nodes' },
};

/** What the agent of these tests answers to `weir explain`. */
function explained({
  source = '',
  destination = '',
  protocol = '',
  port = '',
}: Readonly<Record<string, string>>): FlowExplanation {
  const verdict = port === '80' ? 'allowed' : 'denied';
  const kernel = { verdict: port === '82' ? 'allowed' : verdict, reason: 'by a test packet' } as const;
  const ingress = { direction: 'ingress', at: 'default/app1', reason: 'no-match', deciding: [], others: [] } as const;
  const selecting = [{ policy: 'CiliumNetworkPolicy default/p', path: 'spec.ingress[0]', says: 'allow' }];
  return {
    verdict,
    source,
    destination,
    protocol,
    port: Number(port),
    ends: [{ ...ingress, selecting, verdict, kernel }],
  };
}

/** An API with a fake core, for the tests of one file. */
export async function startAgent(): Promise<void> {
  folder = await mkdtemp(join(tmpdir(), 'weir-cli-'));
  socket = join(folder, 'weir.sock');
  core = new FakeCore();
  server = new ApiServer({
    socket,
    core,
    flows: core,
    log: quiet,
    version: '9.9.9',
    nodeName: 'n1',
    clusterName: 'c',
    kubernetes: false,
    agent: agentView({
      routes: (app) =>
        app.get<{ Querystring: Readonly<Record<string, string>> }>('/policy/explain', ({ query }) => {
          if (query.source === 'pod/default/none') throw new NotFoundError('this node knows no pod default/none');
          if (query.port === 'none') throw new BadRequestError('default/app1 has no TCP port "none"');
          return explained(query);
        }),
      conditions: [
        { name: 'cni', title: 'CNI', read: () => ({ ok: true, message: 'installed' }) },
        { name: 'routing', title: 'Routing', read: () => said.routing },
      ],
    }),
    detach: () => Promise.resolve(false),
    interfaceIndex: () => Promise.resolve(1),
    podCidrs: () => ['10.1.0.0/24'],
    resting: () => said.resting,
  });
  await server.start();
  await core.upsertEndpoint({
    id: 7,
    ifindex: 3,
    interfaceName: 'lxc7',
    addresses: ['10.1.0.7'],
    pod: { namespace: 'default', name: 'app1' },
    labels: { 'k8s:id': 'app1' },
    createdAt: '2025-01-01T00:00:00Z',
  });
}

export async function stopAgent(): Promise<void> {
  await server.stop();
  await rm(folder, { recursive: true });
}

export function healAgent(): void {
  core.healthy = true;
  core.failing = [];
}

export interface Result {
  readonly code: number | null;
  readonly out: string;
  readonly err: string;
}

/** Runs the command as a process. */
export function weir(args: readonly string[], stdin = '', env: Readonly<Record<string, string>> = {}): Promise<Result> {
  return new Promise((resolve, reject) => {
    const child = spawn(WEIR, args, { env: { ...process.env, ...COMPILE_CACHE, WEIR_SOCKET: socket, ...env } });
    let out = '';
    let err = '';
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      out += text;
      if (out.includes('STOP')) child.kill('SIGINT');
    });
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      err += text;
    });
    child.on('error', reject);
    child.on('close', (code) => resolve({ code, out, err }));
    child.stdin.on('error', () => undefined);
    child.stdin.end(stdin);
  });
}

/** Another process that listens, tells each request, and answers with an empty stream that it ends on SIGTERM. */
export async function fakeAgent(path: string): Promise<{ child: ChildProcess; said(text: string): Promise<void> }> {
  const program = `
    require('node:fs').rmSync(process.argv[1], { force: true });
    const answers = [];
    const server = require('node:http').createServer((request, answer) => {
      answer.writeHead(200).flushHeaders();
      answers.push(answer);
      console.log(request.method, request.url);
    });
    server.listen(process.argv[1], () => console.log('listening'));
    process.on('SIGTERM', () => { for (const each of answers) each.end(); server.close(); server.closeIdleConnections(); });`;
  const child = spawn(process.execPath, ['-e', program, path], { stdio: ['ignore', 'pipe', 'inherit'] });
  let out = '';
  const heard: (() => void)[] = [];
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    out += text;
    for (const look of heard) look();
  });
  const said = (text: string): Promise<void> =>
    new Promise((resolve) => {
      const look = (): void => {
        if (out.includes(text)) resolve();
      };
      heard.push(look);
      look();
    });
  await said('listening');
  return { child, said };
}

export const RULES = JSON.stringify([
  { labels: [{ key: 'name', value: 'l3-rule' }], endpointSelector: { matchLabels: { id: 'app1' } }, ingress: [{}] },
]);

export function states(): readonly EndpointStateRow[] {
  using snapshot = core.db.read();
  return [...snapshot.all(core.tables.endpointStates)];
}
