import { mkdirSync, statSync } from 'node:fs';
import { mkdir, stat } from 'node:fs/promises';
import { dirname } from 'node:path';
import { codeOf } from './errors.ts';

/**
 * Makes the folder, and those above it that are missing. Rejects with the error of the one that cannot be made.
 *
 * Node's `recursive` never ends where a folder is there and refuses new ones with ENOENT, as /proc does: it makes the parent and tries again.
 *
 * @param mode of those that are made
 */
export async function makeFolder(path: string, mode = 0o777): Promise<void> {
  if (await made(path, mode)) return;
  const above = dirname(path);
  if (above !== path) await makeFolder(above, mode);
  // Where it is missing still, this says why.
  if (!(await made(path, mode))) await mkdir(path, { mode });
}

/** `makeFolder`, in the same moment. Throws what that rejects with. */
export function makeFolderSync(path: string, mode = 0o777): void {
  try {
    mkdirSync(path, { mode });
  } catch (error) {
    if (codeOf(error) === 'EEXIST' && statSync(path).isDirectory()) return;
    const above = dirname(path);
    if (codeOf(error) !== 'ENOENT' || above === path) throw error;
    makeFolderSync(above, mode);
    // Where it is missing still, this says why.
    mkdirSync(path, { mode });
  }
}

/** False: the one above it is missing, or says so. */
async function made(path: string, mode: number): Promise<boolean> {
  try {
    await mkdir(path, { mode });
    return true;
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return false;
    if (codeOf(error) === 'EEXIST' && (await stat(path)).isDirectory()) return true;
    throw error;
  }
}
