import { type ChildProcess, execFileSync, spawn, spawnSync } from 'node:child_process';
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { eventually } from '../../test/eventually.ts';
import { AgentRunningError } from '../errors.ts';
import { recordingLogger } from '../testing/fake-core.ts';
import { RootLock } from './lock.ts';

let state: string;
let log: ReturnType<typeof recordingLogger>;
const root = `/sys/fs/bpf/wt${process.pid}-lock`;
const other = `${root}-other`;
const locks: RootLock[] = [];
const children: ChildProcess[] = [];

function made(at = root, folder = state): RootLock {
  const lock = new RootLock(at, folder, log);
  locks.push(lock);
  return lock;
}

beforeEach(() => {
  log = recordingLogger();
  state = mkdtempSync(join(tmpdir(), 'weir-lock-'));
});
afterEach(() => {
  for (const { pid: leader } of children.splice(0)) if (leader !== undefined) process.kill(-leader, 'SIGKILL');
  for (const lock of locks.splice(0)) lock.release();
  for (const at of [root, other]) rmSync(at, { recursive: true, force: true });
  // A pid may be about to be written into it.
  rmSync(state, { recursive: true, force: true, maxRetries: 10 });
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
    children.push(spawn('sh', ['-c', `sleep 60; cat ${pid()} > ${heard}`], { stdio: 'ignore', detached: true }));
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
    const script = `import { RootLock } from ${JSON.stringify(LOCK)}; new RootLock(process.argv[1], process.argv[2], console).acquire();`;
    const args = ['--input-type=module', '-e', script, path, state];
    const { stderr, status } = spawnSync(process.execPath, args, { encoding: 'utf8', timeout: 60_000 });
    expect(status).toBe(1);
    expect(stderr).toMatch(new RegExp(`PinRootError.*cannot create the bpf root ${path}: .*${why}.*/sys/fs/bpf/weir`));
    expect(existsSync(path) && path !== '/proc/version').toBe(false);
  });
});

describe('the lock of a state folder', () => {
  const says = `process ${process.pid} already keeps its state in`;

  it('is of one agent, though another has its own bpf root', async () => {
    const lock = made();
    lock.acquire();
    await written();
    const second = made(other);
    expect(() => second.acquire()).toThrow(AgentRunningError);
    expect(() => second.acquire()).toThrow(`${says} ${state}: stop it first`);
    // Neither is anything removed beside it; and the root of who is refused is nobody's.
    expect(() => made(other).acquireExisting()).toThrow(says);
    const elsewhere = made(other, join(state, 'elsewhere'));
    elsewhere.acquire();
    elsewhere.release();
    lock.release();
    second.acquire();
    expect(log.lines).toEqual([]);
  });

  it('is not for other users: a folder that they may open is closed to them', () => {
    mkdirSync(state, { recursive: true });
    chmodSync(state, 0o755);
    made().acquire();
    expect(statSync(state).mode & 0o777).toBe(0o700);
  });

  it('is taken again when the folder was removed and recreated', async () => {
    const lock = made();
    lock.acquire();
    await written();
    rmSync(state, { recursive: true });
    await written(() => lock.look());
    await eventually(
      async () => {
        try {
          made(other).acquireExisting();
          locks.at(-1)?.release();
          return '';
        } catch (error) {
          return String(error);
        }
      },
      (text) => text.includes('already keeps its state'),
    );
  });

  it.each(['read-only', 'a file'])('keeps no agent from running where that is %s', async (what) => {
    const folder = join(state, 'x');
    const undo = what === 'a file' ? writeFileSync(folder, '') : readOnly(folder);
    try {
      made(root, folder).acquire();
      if (undo === undefined) {
        expect(log.lines).toMatchObject([{ level: 'warn', message: expect.stringContaining('cannot be locked') }]);
        made(other, folder).acquire();
      } else {
        expect(log.lines).toEqual([]);
        expect(() => made(other, folder).acquire()).toThrow('already keeps its state');
      }
    } finally {
      undo?.();
    }
  });

  it('says once that there is none, and that nobody can make it', async () => {
    const lock = made(root, '/proc/nope/state');
    lock.acquire();
    lock.look();
    made(other, '/proc/nope/state').acquire();
    const lines = log.lines.map(({ level, fields }) => [level, fields]);
    const line = ['warn', { folder: '/proc/nope/state', error: expect.stringContaining('ENOENT') }];
    expect(lines).toEqual([line, line]);
  });
});

/** Makes the folder, mounted so that nothing in it can be written. Returns what takes that back. */
function readOnly(folder: string): () => void {
  mkdirSync(folder);
  execFileSync('mount', ['--bind', folder, folder]);
  execFileSync('mount', ['-o', 'remount,ro,bind', folder]);
  return () => {
    for (const lock of locks) lock.release();
    execFileSync('umount', [folder]);
  };
}
