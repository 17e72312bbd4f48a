/** The agent's socket: who may have its place, and that it is made again. */
import { writeFileSync } from 'node:fs';
import { lstat, mkdir, mkdtemp, readdir, readFile, rename, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { createServer, Server } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it, jest } from '@jest/globals';
import { codeOf } from '@weir/process/errors';
import { eventually } from '../../test/eventually.ts';
import { apiServer } from '../testing/api-server.ts';
import { FakeCore, recordingLogger } from '../testing/fake-core.ts';
import { call } from '../testing/request.ts';
import type { ApiServer } from './server.ts';

let folder: string;
let socket: string;
let server: ApiServer;
let log: ReturnType<typeof recordingLogger>;

const makeServer = (): ApiServer => apiServer({ socket, core: new FakeCore(), log });

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'weir-socket-'));
  socket = join(folder, 'weir.sock');
  log = recordingLogger();
  server = makeServer();
  await server.start();
});
afterEach(async () => {
  await server.stop();
  await rm(folder, { recursive: true });
});

const works = async (): Promise<boolean> => {
  const answer = await call(socket, 'GET', '/config').catch(() => undefined);
  return answer?.status === 200;
};

it('is for root and its group only', async () => {
  expect((await stat(socket)).mode & 0o777).toBe(0o660);
});

it('refuses a second agent and leaves the first one listening', async () => {
  await expect(makeServer().start()).rejects.toThrow(`another agent listens on ${socket}`);
  expect((await call(socket, 'GET', '/healthz')).status).toBe(200);
});

it('replaces a stale socket, and never something that is no socket', async () => {
  await server.stop();
  await deadSocket();
  server = makeServer();
  await server.start();
  expect((await call(socket, 'GET', '/healthz')).status).toBe(200);
  await server.stop();
  await writeFile(socket, 'text');
  await expect(makeServer().start()).rejects.toThrow('is not a socket');
});

/** What others may put in the socket's place. */
const EMPTY: readonly (readonly [string, () => Promise<void>])[] = [
  ['folder, which a container runtime makes for a pod that mounts the socket', () => mkdir(socket)],
  ['file, which kubelet makes for a hostPath of type FileOrCreate', () => writeFile(socket, '')],
  ['link, which leads nowhere', () => symlink(join(folder, 'nowhere'), socket)],
];

/** At once: a file that is still empty would be of no value. */
const putFile = async (text: string): Promise<void> => {
  await writeFile(join(folder, 'file'), text);
  await rename(join(folder, 'file'), socket);
};

const FULL: readonly (readonly [string, () => Promise<void>])[] = [
  [
    'folder',
    async () => {
      await mkdir(join(folder, 'full'), { recursive: true });
      await writeFile(join(folder, 'full', 'text'), 'text');
      await rename(join(folder, 'full'), socket);
    },
  ],
  ['file', () => putFile('text')],
  [
    'link',
    async () => {
      await writeFile(join(folder, 'text'), 'text');
      await symlink(join(folder, 'text'), socket);
    },
  ],
];

/** The server may be faster, and have its socket back. */
const putInPlace = async (put: () => Promise<void>): Promise<void> => {
  for (;;) {
    await rm(socket, { force: true });
    try {
      return await put();
    } catch (error) {
      if (!['EEXIST', 'ENXIO', 'ENOTDIR'].includes(codeOf(error) ?? '')) throw error;
    }
  }
};

const answered = async (): Promise<void> => {
  await eventually(works, (is) => is);
  await eventually(
    async () => server.listening(),
    ({ ok }) => ok,
  );
};

it.each(EMPTY)('replaces an empty %s', async (_what, put) => {
  await server.stop();
  await put();
  server = makeServer();
  await server.start();
  expect((await call(socket, 'GET', '/healthz')).status).toBe(200);
  // The same under a running agent.
  await putInPlace(put);
  await answered();
  expect((await lstat(socket)).isSocket()).toBe(true);
  expect(await readdir(folder)).toEqual(['weir.sock']);
});

it.each(FULL)('moves a %s with content aside while it runs, and refuses to start over it', async (_what, put) => {
  await putInPlace(put);
  await answered();
  const aside = `${socket}.aside`;
  expect(await readFile((await stat(aside)).isDirectory() ? join(aside, 'text') : aside, 'utf8')).toBe('text');
  expect(log.lines.filter(({ fields }) => 'aside' in fields)).toMatchObject([
    { level: 'warn', fields: { socket, aside } },
  ]);
  // Another one has no place beside it: nothing is lost.
  await putFile('more');
  const { message } = await eventually(
    async () => server.listening(),
    ({ ok, message: why }) => !ok && why.includes('aside'),
  );
  expect(message).toContain(`remove that, and ${aside}`);
  expect(await readFile(socket, 'utf8')).toBe('more');
  await rm(socket);
  await answered();
  await server.stop();
  await rm(aside, { recursive: true });
  await rm(join(folder, 'text'), { force: true });
  await put();
  await expect(makeServer().start()).rejects.toThrow('is not a socket');
});

it.each([
  ['removed', () => rm(socket)],
  ['removed with its folder', () => rm(folder, { recursive: true, maxRetries: 10 })],
  ['moved away', () => rename(socket, `${socket}.away`)],
  ['replaced by one that nobody listens on', deadSocket],
])('is made again when it is %s, more than once', async (_, lose) => {
  for (let time = 0; time < 2; time += 1) {
    await lose();
    await answered();
    expect((await stat(socket)).mode & 0o777).toBe(0o660);
  }
});

it('of another live process is left alone, also at the end, and said', async () => {
  const other = createServer((connection) => connection.destroy());
  await new Promise<void>((resolve) => other.listen(`${socket}.other`, resolve));
  await rename(`${socket}.other`, socket);
  const status = async () => server.listening();
  expect(await eventually(status, ({ ok }) => !ok)).toMatchObject({
    ok: false,
    message: expect.stringContaining('another process listens'),
  });
  const { ino } = await stat(socket);
  await server.stop();
  expect((await stat(socket)).ino).toBe(ino);
  await new Promise((resolve) => other.close(resolve));
});

it('goes on when a connection cannot be accepted, and says so, made once or again', async () => {
  await server.stop();
  const listen = jest.spyOn(Server.prototype, 'listen');
  server = makeServer();
  await server.start();
  await rm(socket);
  await answered();
  const inner = listen.mock.contexts as Server[];
  listen.mockRestore();
  expect(inner).toHaveLength(2);
  const refused = new Error('accept EMFILE');
  for (const one of inner) for (let time = 0; time < 2; time += 1) one.emit('error', refused);
  const said = { level: 'error', fields: { socket, err: refused } };
  expect(log.lines.filter(({ level }) => level === 'error')).toMatchObject([said, said, said, said]);
  expect(await works()).toBe(true);
});

it('overwrites nothing that is put there while it is made again', async () => {
  let put = false;
  log.warn = (fields, message) => {
    log.info(fields, message);
    // What was there has been looked at.
    if (!put) writeFileSync(socket, 'text');
    put = true;
  };
  await rm(socket);
  await answered();
  expect(await readFile(`${socket}.aside`, 'utf8')).toBe('text');
  expect(log.lines.filter(({ level }) => level === 'error')).toEqual([]);
});

it('is gone when the server ends, made once or again', async () => {
  await rm(socket);
  await eventually(works, (is) => is);
  await server.stop();
  await expect(stat(socket)).rejects.toThrow('ENOENT');
  server = makeServer();
  await server.start();
  expect(await works()).toBe(true);
});

/** A socket file as a killed process leaves it. */
async function deadSocket(): Promise<void> {
  const made = `${socket}.dead`;
  const dead = createServer();
  await new Promise<void>((resolve) => dead.listen(made, resolve));
  await rename(made, socket);
  await new Promise((resolve) => dead.close(resolve));
}
