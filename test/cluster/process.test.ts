import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from '@jest/globals';
import { Program } from './process.ts';

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'weir-program-'));
});
afterEach(() => rmSync(folder, { recursive: true }));

it('a program that ends by itself is told, one that is ended is not', async () => {
  const ends: string[] = [];
  const start = (...args: readonly string[]): Program =>
    new Program({
      name: 'p',
      command: 'sh',
      args: ['-c', ...args],
      logFile: join(folder, 'log'),
      onEnd: (how) => ends.push(how),
    });
  await start('exit 3').exited();
  const killed = start('exec sleep 1000');
  await new Promise((resolve) => killed.child.once('spawn', resolve));
  process.kill(killed.pid ?? 0, 'SIGKILL');
  await killed.exited();
  for (const how of ['stop', 'kill9'] as const) {
    const program = start('exec sleep 1000');
    await program[how]();
  }
  expect(ends).toEqual(['exit code 3', 'SIGKILL']);
});

it('ctrl-C at the terminal reaches the cluster, which stops its programs: none is in its process group', async () => {
  const program = new Program({ name: 'p', command: 'sleep', args: ['1000'], logFile: join(folder, 'log') });
  try {
    await new Promise((resolve) => program.child.once('spawn', resolve));
    // Process group and session: fields 5 and 6.
    const fields = readFileSync(`/proc/${program.pid}/stat`, 'utf8').split(' ');
    expect(fields.slice(4, 6)).toEqual([String(program.pid), String(program.pid)]);
  } finally {
    await program.stop();
  }
});
