import { mkdtemp, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from '@jest/globals';
import { makeFolder } from './folders.ts';

let root: string;
beforeEach(async () => {
  root = await mkdtemp(join(tmpdir(), 'weir-folders-'));
});
afterEach(() => rm(root, { recursive: true }));

it('makes those above it too, with the mode, and finds it made', async () => {
  const path = join(root, 'a', 'b', 'c');
  for (let time = 0; time < 2; time += 1) await makeFolder(path, 0o700);
  for (const each of [path, join(root, 'a')]) expect((await stat(each)).mode & 0o777).toBe(0o700);
});

it('says why it cannot: a file in the way, or a folder that takes none', async () => {
  await writeFile(join(root, 'file'), '');
  await expect(makeFolder(join(root, 'file'))).rejects.toMatchObject({ code: 'EEXIST' });
  await expect(makeFolder(join(root, 'file', 'below'))).rejects.toMatchObject({ code: 'ENOTDIR' });
  for (const path of ['/proc/nope', '/proc/nope/below'])
    await expect(makeFolder(path)).rejects.toMatchObject({ code: 'ENOENT', path: '/proc/nope' });
});
