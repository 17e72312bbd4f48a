import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { copyFile, readFile, rename, rm, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { codeOf } from '@weir/process/errors';
import { makeFolder } from '@weir/process/folders';
import { newId } from '@weir/process/id';
import { CniBuildError } from './errors.ts';

const run = promisify(execFile);
const HERE = dirname(fileURLToPath(import.meta.url));
const FLAGS = ['-static', '-Os', '-s', '-std=gnu11', '-Wall', '-Wextra', '-Werror'];

/**
 * Compiles weir-cni to a static binary and returns its path. Cached in `.cache/` of the project by a hash of source and flags; `out`
 * is a further copy, `defines` go to the preprocessor (`NAME=VALUE`). Throws `CniBuildError`.
 */
export async function buildCni(
  options: { readonly out?: string; readonly cacheDir?: string; readonly defines?: readonly string[] } = {},
): Promise<string> {
  const flags = [...FLAGS, ...(options.defines ?? []).map((define) => `-D${define}`)];
  const source = join(HERE, 'weir-cni.c');
  const text = await readFile(source);
  const hash = createHash('sha256')
    .update(text)
    .update(flags.join(' '))
    .update(process.arch)
    .digest('hex')
    .slice(0, 16);
  const cache = options.cacheDir ?? join(HERE, '..', '..', '.cache', 'cni');
  const binary = join(cache, `weir-cni-${hash}`);
  if (!(await exists(binary))) {
    await makeFolder(cache);
    const temporary = `${binary}.${newId()}`;
    try {
      await run('gcc', [...flags, '-o', temporary, source]);
      await rename(temporary, binary);
    } catch (error) {
      await rm(temporary, { force: true });
      const detail =
        error instanceof Error && 'stderr' in error && typeof error.stderr === 'string' && error.stderr !== ''
          ? error.stderr
          : String(error);
      throw new CniBuildError(
        `weir-cni could not be built: ${detail.trim()} (needs gcc and libc6-dev: apt-get install gcc libc6-dev)`,
        { cause: error },
      );
    }
  }
  if (options.out === undefined) return binary;
  const temporary = `${options.out}.${newId()}`;
  await makeFolder(dirname(options.out));
  await copyFile(binary, temporary);
  await rename(temporary, options.out);
  return options.out;
}

async function exists(path: string): Promise<boolean> {
  try {
    return (await stat(path)).isFile();
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return false;
    throw error;
  }
}
