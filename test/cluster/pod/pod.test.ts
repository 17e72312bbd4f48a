/** The pods' program as it runs in a container: told by the environment, asked through a unix socket. */
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { freePort } from '../free-port.ts';
import { Program } from '../process.ts';
import { attempt, ROOT } from '../run.ts';
import { containerPorts } from '../types.ts';
import { PodSocket } from './socket.ts';

const MAIN = join(ROOT, 'test/cluster/pod/main.ts');

describe('the program of a pod, in a container', () => {
  let folder: string;
  let program: Program | undefined;
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'wr-pod-'));
  });
  afterEach(async () => {
    await program?.stop();
    rmSync(folder, { recursive: true });
  });

  /** Starts it with no ports; returns a connection to it. */
  async function start(socket: string): Promise<PodSocket> {
    program = new Program({
      name: 'pod',
      command: process.execPath,
      args: [MAIN],
      logFile: join(folder, 'log'),
      env: { WEIR_POD_SOCKET: socket, WEIR_POD_NAME: 'somebody' },
    });
    for (;;) {
      try {
        return await PodSocket.open('pod', socket);
      } catch (error) {
        if (!program.running) throw new Error(`it ended: ${program.tail}`, { cause: error });
        await sleep(20);
      }
    }
  }

  it('serves, probes and streams as asked; a port that it serves already is left as it is', async () => {
    const pod = await start(join(folder, 'deep/pod.sock'));
    const port = await freePort();
    const target = { address: '127.0.0.1', port, timeoutMs: 60_000 } as const;
    expect(await pod.probe({ ...target, protocol: 'tcp' })).toBe('refused');
    await pod.serve('somebody', [port], []);
    await pod.serve('somebody', [port], []);
    expect(await pod.probe({ ...target, protocol: 'http' })).toBe('reached');
    const streams = [await pod.stream('tcp', '127.0.0.1', port), await pod.stream('tcp', '127.0.0.1', port)];
    while ((await streams[1]?.report())?.echoed === 0) await sleep(10);
    expect(await (await fetch(`http://127.0.0.1:${port}/`)).text()).toBe('somebody\n');
    for (const stream of streams) await stream.close();
    await expect(streams[0]?.report()).rejects.toThrow('no stream 1 in this pod');
    await pod.stop();
  });

  it('starts again where an earlier run left its socket, and tells those that wait when it ends', async () => {
    const path = join(folder, 'pod.sock');
    await start(path);
    await program?.kill9();
    const pod = await start(path);
    // Listens and never answers.
    const silent = createSocket('udp4').bind(0, '127.0.0.1');
    await once(silent, 'listening');
    const asked = once(silent, 'message');
    const { port } = silent.address();
    const probe = pod.probe({ protocol: 'udp', address: '127.0.0.1', port, timeoutMs: 60_000 });
    const rejected = expect(probe).rejects.toThrow('pod process pod ended');
    await asked;
    await program?.kill9();
    await rejected;
    silent.close();
    await expect(pod.probe({ protocol: 'tcp', address: '127.0.0.1', port: 9, timeoutMs: 1 })).rejects.toThrow(
      'has ended',
    );
  });

  it.each([
    [{ WEIR_POD_TCP: '80,http' }, 'WEIR_POD_TCP is "80,http": "http" is no port'],
    [{}, 'nothing to do'],
  ])('refuses %j', async (env, message) => {
    const output = await attempt(process.execPath, [MAIN], { env });
    expect(output.code).toBe(1);
    expect(output.stderr).toContain(message);
  });

  it('says that a socket has too long a path', async () => {
    await expect(PodSocket.open('pod', `/tmp/${'x'.repeat(120)}`)).rejects.toThrow('use a shorter TMPDIR');
  });
});

describe('container ports', () => {
  it('carry their names, and a name of no port is refused', () => {
    const spec = { name: 'p', node: 1, tcp: [80], udp: [53] };
    expect(containerPorts({ ...spec, portNames: { dns: '53/udp' } })).toEqual([
      { containerPort: 80, protocol: 'TCP' },
      { containerPort: 53, protocol: 'UDP', name: 'dns' },
    ]);
    expect(() => containerPorts({ ...spec, portNames: { dns: '53/tcp' } })).toThrow(
      'portNames names 53/tcp, which is not among 80/tcp, 53/udp',
    );
  });
});
