/** What a unit test may not do fails in it. */
import { exec, execFile, execFileSync, execSync, fork, spawn, spawnSync } from 'node:child_process';
import { createSocket } from 'node:dgram';
import { request } from 'node:http';
import { connect, createServer } from 'node:net';
import { promisify } from 'node:util';
import { expect, it } from '@jest/globals';
import { createMap } from 'libbpf-ts';

const map = { name: 'm', type: 'hash', keySize: 4, valueSize: 4, maxEntries: 1 } as const;

it.each<[name: string, does: string, call: () => unknown]>([
  ['spawn', 'starts a process', () => spawn('true')],
  ['spawnSync', 'starts a process', () => spawnSync('true')],
  ['exec', 'starts a process', () => exec('true')],
  ['execSync', 'starts a process', () => execSync('true')],
  ['execFile, promisified', 'starts a process', () => promisify(execFile)('true')],
  ['execFileSync', 'starts a process', () => execFileSync('true')],
  ['fork', 'starts a process', () => fork(import.meta.filename)],
  ['a server', 'opens a socket', () => createServer().listen(0)],
  ['a connection', 'opens a socket', () => connect(1)],
  ['a request', 'opens a socket', () => request('http://127.0.0.1:1').end()],
  ['a datagram', 'opens a socket', () => createSocket('udp4').send('x', 1)],
  ['a map of the kernel', 'calls libbpf', () => createMap(map)],
])('%s %s', async (_, does, call) => {
  const made = Promise.resolve().then(call);
  await expect(made).rejects.toThrow(`a unit test ${does}: give test/projects/environment.test.ts another project`);
});
