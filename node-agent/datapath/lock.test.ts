import { type ChildProcess, execFileSync, spawn, spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { eventually } from '../../test/eventually.ts';
import { AgentRunningError } from '../errors.ts';
import { RootLock } from './lock.ts';

let state: string;
const root = `/sys/fs/bpf/wt${process.pid}-lock`;
const locks: RootLock[] = [];
const children: ChildProcess[] = [];

function made(): RootLock {
  const lock = new RootLock(root, state);
  locks.push(lock);
  return lock;
}

beforeEach(() => {
  state = mkdtempSync(join(tmpdir(), 'weir-lock-'));
});
afterEach(() => {
  for (const { pid: leader } of children.splice(0)) if (leader !== undefined) process.kill(-leader, 'SIGKILL');
  for (const lock of locks.splice(0)) lock.release();
  rmSync(root, { recursive: true, force: true });
  rmSync(state, { recursive: true, force: true });
});

const pid = (): string => join(state, 'agent.pid');
const LOCK = join(import.meta.dirname, 'lock.ts');
const written = async (look = (): void => undefined): Promise<string> =>
  eventually(
    async () => {
      look();
      return existsSync(pid()) ? readFileSync(pid(), 'utf8') : '';
    },
    (text) => text !== '',
  );

describe('the lock of a bpf root', () => {
  it('is of one agent, whose pid is said, also after somebody removed its file', async () => {
    const lock = made();
    lock.acquire();
    expect(await written()).toBe(`${process.pid}\n`);
    rmSync(pid());
    // The first writing may be about to end.
    expect(await written(() => lock.look())).toBe(`${process.pid}\n`);
    expect(() => made().acquire()).toThrow(AgentRunningError);
    expect(() => made().acquire()).toThrow(`${process.pid}`);
    lock.release();
    made().acquire();
  });

  it('does not wait for a disk that does not answer', async () => {
    // Whoever writes into it waits for a reader; the first comes soon enough for the test to end if that was this process.
    execFileSync('mkfifo', [pid()]);
    const heard = join(state, 'heard');
    children.push(spawn('sh', ['-c', `sleep 5; cat ${pid()} > ${heard}`], { stdio: 'ignore', detached: true }));
    const lock = made();
    lock.acquire();
    lock.look();
    expect(existsSync(heard)).toBe(false);
    expect(await readFile(pid(), 'utf8')).toBe(`${process.pid}\n`);
  });

  it.each([
    ['/proc/nope/weir', 'ENOENT'],
    // Node's own recursive form would make it for ever.
    ['/sys/fs/bpf/../../../proc/nope', 'ENOENT'],
    ['/sys/fs/bpf/no.dots', 'EPERM'],
    ['/proc/version', 'ENOTDIR'],
  ])('says at once why it cannot be made: %s', (path, why) => {
    const script = `import { RootLock } from ${JSON.stringify(LOCK)}; new RootLock(process.argv[1], process.argv[2]).acquire();`;
    const args = ['--input-type=module', '-e', script, path, state];
    const { stderr, status } = spawnSync(process.execPath, args, { encoding: 'utf8', timeout: 60_000 });
    expect(status).toBe(1);
    expect(stderr).toMatch(new RegExp(`PinRootError.*bpf root ${path} cannot be made: .*${why}.*/sys/fs/bpf/weir`));
    expect(existsSync(path) && path !== '/proc/version').toBe(false);
  });
});
