/** Who reaches the agent's socket, from the moment that it is there: everything on it is root's to ask for. */
import { chmod, mkdir, mkdtemp, readdir, rename, rm, stat } from 'node:fs/promises';
import { createServer, type Server } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { eventually } from '../../test/eventually.ts';
import { quiet } from '../testing/fake-core.ts';
import { SocketGuard } from './socket-guard.ts';

let folder = '';
let umask = 0;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'weir-guard-'));
  await chmod(folder, 0o755);
  umask = process.umask(0);
});
afterEach(async () => {
  process.umask(umask);
  await rm(folder, { recursive: true });
});

/** connect(2) asks for write permission on the socket and for search permission on its folder. */
async function openToOthers(path: string): Promise<boolean> {
  const [socket, above] = [await stat(path), await stat(dirname(path))];
  return (socket.mode & 0o002) !== 0 && (above.mode & 0o001) !== 0;
}

describe('the socket under umask 0', () => {
  it('is open to others at no moment, neither at first nor when it is made again, and leaves nothing beside it', async () => {
    const path = join(folder, 'run', 'weir.sock');
    const servers: Server[] = [];
    const seen: boolean[] = [];
    const guard = new SocketGuard({
      path,
      log: quiet,
      intervalMs: 5,
      accept: (socket) => socket.destroy(),
      closeIdle: () => undefined,
      listen: async (at) => {
        const server = createServer();
        servers.push(server);
        await new Promise<void>((resolve) => server.listen(at, resolve));
        // It has its mode from the umask alone.
        expect((await stat(at)).mode & 0o777).toBe(0o777);
        seen.push(await openToOthers(at));
        return server;
      },
    });
    await guard.start();
    try {
      expect(seen).toEqual([false]);
      expect(await openToOthers(path)).toBe(false);
      expect(await readdir(dirname(path))).toEqual(['weir.sock']);
      await rm(path);
      await eventually(
        () => readdir(dirname(path)),
        (names) => names.join() === 'weir.sock',
      );
      expect(await openToOthers(path)).toBe(false);
    } finally {
      await guard.close();
      for (const server of servers) server.close();
      await guard.drained();
    }
  });

  it('is in a folder that others may not change: they would put their own in its place', async () => {
    const path = join(folder, 'run', 'weir.sock');
    const guard = new SocketGuard({
      path,
      log: quiet,
      accept: () => undefined,
      closeIdle: () => undefined,
      listen: async (at) => {
        const server = createServer().unref();
        await new Promise<void>((resolve) => server.listen(at, resolve));
        return server;
      },
    });
    await guard.start();
    await guard.close();
    expect((await stat(dirname(path))).mode & 0o777).toBe(0o755);
  });
});

describe('a socket that was closed', () => {
  it('leaves alone what has its place and its number afterwards', async () => {
    const path = join(folder, 'weir.sock');
    const server = createServer();
    const guard = new SocketGuard({
      path,
      log: quiet,
      accept: (socket) => socket.destroy(),
      closeIdle: () => undefined,
      listen: async (at) => {
        await new Promise<void>((resolve) => server.listen(at, resolve));
        return server;
      },
    });
    await guard.start();
    const { ino } = await stat(path);
    await guard.close();
    await new Promise((resolve) => server.close(resolve));
    // File systems give a number that was freed to the next one or so.
    await mkdir(path);
    for (let tries = 0; tries < 50 && (await stat(path)).ino !== ino; tries += 1) {
      await rename(path, join(folder, `other-${tries}`));
      await mkdir(path);
    }
    await guard.close();
    expect((await stat(path)).isDirectory()).toBe(true);
  });
});
