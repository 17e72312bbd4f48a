/** The C shim as a runtime runs it, against the API with a fake core, and against sockets that misbehave. */

import { spawn } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer, type Server } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { ApiServer } from '../api/server.ts';
import { agentView } from '../testing/agent-view.ts';
import { FakeCore, quiet } from '../testing/fake-core.ts';
import { buildCni } from './build.ts';
import { cniRoute } from './part.ts';
import type { CniAnswer } from './types.ts';

let folder = '';
let shim = '';
let socket = '';
let server: ApiServer;
const requests: unknown[] = [];
let answer: CniAnswer = { ok: true };

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'weir-shim-'));
  socket = join(folder, 'weir.sock');
  shim = await buildCni({ out: join(folder, 'weir-cni') });
  server = new ApiServer({
    socket,
    core: new FakeCore(),
    flows: new FakeCore(),
    log: quiet,
    version: '0',
    nodeName: 'n',
    clusterName: 'c',
    kubernetes: false,
    agent: agentView({
      routes: (app) =>
        cniRoute(app, (request) => {
          requests.push(request);
          return Promise.resolve(answer);
        }),
    }),
    detach: () => Promise.resolve(false),
    interfaceIndex: () => Promise.resolve(1),
    podCidrs: () => [],
  });
  await server.start();
});
afterAll(async () => {
  await server.stop();
  await rm(folder, { recursive: true });
});

it('is built once by two who need it at the same time', async () => {
  const options = { cacheDir: join(folder, 'cache'), out: join(folder, 'again') };
  expect(await Promise.all([buildCni(options), buildCni(options)])).toEqual([options.out, options.out]);
});

function run(
  command: string | undefined,
  stdin: string | Uint8Array,
  env: Readonly<Record<string, string>> = {},
): Promise<{ code: number | null; stdout: string }> {
  return new Promise((resolve, reject) => {
    const child = spawn(shim, [], { env: { ...(command === undefined ? {} : { CNI_COMMAND: command }), ...env } });
    let stdout = '';
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      stdout += text;
    });
    child.on('error', reject);
    child.on('close', (code) => resolve({ code, stdout }));
    // The shim may end before it has read everything.
    child.stdin.on('error', () => undefined);
    child.stdin.end(stdin);
  });
}
const config = (extra: object = {}): string =>
  JSON.stringify({ cniVersion: '1.1.0', name: 'weir', type: 'weir-cni', socket, ...extra });

describe('weir-cni', () => {
  it('answers VERSION without an agent', async () => {
    const { code, stdout } = await run('VERSION', config({ socket: '/nowhere' }));
    expect([code, JSON.parse(stdout)]).toEqual([
      0,
      { cniVersion: '1.1.0', supportedVersions: ['0.4.0', '1.0.0', '1.1.0'] },
    ]);
  });

  it('hands over environment and stdin byte for byte, and prints the result', async () => {
    answer = { ok: true, body: { cniVersion: '1.1.0', ips: [] } };
    const stdin = `{"nested":{"socket":"/wrong"}, "socket" : "${socket}",\n"cniVersion":"1.1.0","text":"\\"\\\\ é 漢 😀 \\u0001"}`;
    const { code, stdout } = await run('ADD', stdin, {
      CNI_CONTAINERID: 'c"1\n',
      CNI_ARGS: 'A=\\;B=é',
      OTHER: 'never sent',
    });
    expect([code, JSON.parse(stdout)]).toEqual([0, answer.body]);
    expect(requests.at(-1)).toEqual({
      env: { CNI_COMMAND: 'ADD', CNI_CONTAINERID: 'c"1\n', CNI_ARGS: 'A=\\;B=é' },
      stdin,
    });
  });

  it('replaces bytes that are not UTF-8', async () => {
    answer = { ok: true };
    const bad = Uint8Array.from([...Buffer.from(config()), 0x20, 0xff, 0xc0, 0xaf, 0xed, 0xa0, 0x80, 0xf0, 0x9f]);
    expect((await run('DEL', bad)).code).toBe(0);
    expect((requests.at(-1) as { stdin: string }).stdin).toBe(`${config()} ${'\ufffd'.repeat(8)}`);
  });

  it('prints nothing for an answer without a body', async () => {
    answer = { ok: true };
    expect(await run('DEL', config())).toEqual({ code: 0, stdout: '' });
  });

  it('prints a CNI error and exits with 1', async () => {
    answer = { ok: false, body: { cniVersion: '1.1.0', code: 102, msg: 'no free address', details: '' } };
    const { code, stdout } = await run('ADD', config());
    expect([code, JSON.parse(stdout)]).toEqual([1, answer.body]);
  });

  it.each([
    ['no agent', 'ADD', () => config({ socket: '/nowhere/weir.sock' }), 11, '/nowhere/weir.sock'],
    ['a path that is too long', 'ADD', () => config({ socket: `/${'x'.repeat(200)}` }), 4, 'longer than'],
    ['no command', undefined, config, 4, 'CNI_COMMAND'],
    ['garbage', 'ADD', () => '\u0000garbage', 6, 'not a JSON object'],
    ['nothing', 'ADD', () => ' ', 6, 'not a JSON object'],
    ['too much', 'ADD', () => 'x'.repeat(2 << 20), 6, 'larger than'],
  ])('says what is wrong: %s', async (_what, command, stdin, cniCode, message) => {
    const { code, stdout } = await run(command, stdin());
    expect(code).toBe(1);
    expect(JSON.parse(stdout)).toMatchObject({ code: cniCode, msg: expect.stringContaining(message) });
  });

  it('does not wait for ever for a runtime that never ends its input', async () => {
    const hasty = await buildCni({ out: join(folder, 'hasty'), defines: ['STDIN_MS=50'] });
    const child = spawn(hasty, [], { env: { CNI_COMMAND: 'ADD' } });
    child.stdin.on('error', () => undefined);
    child.stdin.write(config());
    let stdout = '';
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      stdout += text;
    });
    const code = await new Promise((resolve) => child.on('close', resolve));
    expect(code).toBe(1);
    expect(JSON.parse(stdout)).toMatchObject({ code: 5, msg: expect.stringContaining('did not end within 50 ms') });
  });

  it.each([
    ['closes at once', ''],
    ['cuts its answer off', 'HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{}'],
    ['speaks something else', 'hello\r\n\r\n'],
  ])('survives an agent that %s', async (_what, reply) => {
    const path = join(folder, 'bad.sock');
    const bad: Server = createServer((connection) => {
      connection.on('error', () => undefined);
      connection.once('data', () => connection.end(reply));
    });
    await new Promise<void>((resolve) => bad.listen(path, resolve));
    try {
      const { code, stdout } = await run('ADD', config({ socket: path }));
      expect([code, (JSON.parse(stdout) as { code: number }).code]).toEqual([1, 11]);
    } finally {
      await new Promise((resolve) => bad.close(resolve));
    }
  });
});
