import { mkdtemp, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from '@jest/globals';
import { makeFolder, makeFolderSync } from './folders.ts';

let root: string;
beforeEach(async () => {
  root = await mkdtemp(join(tmpdir(), 'weir-folders-'));
});
afterEach(() => rm(root, { recursive: true }));

const FORMS = [
  ['waiting', makeFolder],
  ['in the same moment', async (path: string, mode?: number) => makeFolderSync(path, mode)],
] as const;

it.each(FORMS)('makes those above it too, with the mode, and finds it made, %s', async (_, make) => {
  const path = join(root, 'a', 'b', 'c');
  for (let time = 0; time < 2; time += 1) await make(path, 0o700);
  for (const each of [path, join(root, 'a')]) expect((await stat(each)).mode & 0o777).toBe(0o700);
});

it.each(FORMS)(
  'says why it cannot: a file or a dangling link in the way, or a folder that takes none, %s',
  async (_, make) => {
    await writeFile(join(root, 'file'), '');
    await symlink(join(root, 'nowhere'), join(root, 'link'));
    await expect(make(join(root, 'file'))).rejects.toMatchObject({ code: 'EEXIST' });
    await expect(make(join(root, 'link'))).rejects.toMatchObject({ code: 'ENOENT', path: join(root, 'link') });
    await expect(make(join(root, 'file', 'below'))).rejects.toMatchObject({ code: 'ENOTDIR' });
    for (const path of ['/proc/nope', '/proc/nope/below'])
      await expect(make(path)).rejects.toMatchObject({ code: 'ENOENT', path: '/proc/nope' });
  },
);
