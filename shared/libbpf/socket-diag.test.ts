import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { afterEach, expect, it } from '@jest/globals';
import { ArgumentError } from './errors.ts';
import { closeSockets } from './socket-diag.ts';

let server: Server | undefined;
afterEach(() => {
  server?.close();
});

/** A connection to a server of its own, and what the kernel calls it. */
async function dial(): Promise<{ readonly socket: Socket; readonly port: number; readonly cookie: bigint }> {
  server = createServer((other) => other.on('error', () => undefined)).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  const port = typeof address === 'object' && address !== null ? address.port : 0;
  const socket = connect(port, '127.0.0.1');
  await once(socket, 'connect');
  const { stdout } = spawnSync('ss', ['-tneH', `dport = :${port}`], { encoding: 'utf8' });
  const [, cookie = ''] = / sk:([0-9a-f]+)/.exec(stdout) ?? [];
  return { socket, port, cookie: BigInt(`0x${cookie}`) };
}

it('closes the sockets of these numbers, and no other to the same port', async () => {
  const { socket, port, cookie } = await dial();
  expect(closeSockets('TCP', port, new Set([cookie + 1n, 0n]))).toBe(0);
  expect(closeSockets('UDP', port, new Set([cookie]))).toBe(0);
  const error = once(socket, 'error');
  expect(closeSockets('TCP', port, new Set([cookie]))).toBe(1);
  expect(await error).toEqual([expect.objectContaining({ code: 'ECONNABORTED' })]);
  expect(closeSockets('TCP', port, new Set([cookie]))).toBe(0);
});

it.each([0, -1, 65_536, 1.5])('refuses port %p, which would stand for every port', (port) => {
  expect(() => closeSockets('TCP', port, new Set())).toThrow(ArgumentError);
});
