import type { Stats } from 'node:fs';
import { lstat, rmdir, stat, unlink } from 'node:fs/promises';
import { connect } from 'node:net';
import { dirname } from 'node:path';
import { codeOf } from '@weir/process/errors';
import { makeFolder } from '@weir/process/folders';
import { SocketError } from './errors.ts';

/** sun_path is 108 bytes with its terminator (unix(7)). */
const MAX_PATH_BYTES = 107;
/** Who may change the folder may put a socket of his own in the agent's place. */
export const SOCKET_FOLDER_MODE = 0o755;

/**
 * Makes the path free for listening: creates its folder and removes a socket that nobody listens on any more, or what is of no value to anybody.
 * Throws `SocketError` when a live agent holds it, or when something else is there: the path may be a mistake, and what is there somebody's.
 */
export async function claimSocketPath(path: string): Promise<void> {
  if (Buffer.byteLength(path) > MAX_PATH_BYTES)
    throw new SocketError(`socket path ${path} is longer than ${MAX_PATH_BYTES} bytes; choose a shorter --socket`);
  try {
    await makeFolder(dirname(path), SOCKET_FOLDER_MODE);
  } catch (error) {
    throw new SocketError(`cannot create the folder of --socket ${path}: ${String(error)}`, { cause: error });
  }
  let found: Stats;
  try {
    found = await lstat(path);
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return;
    throw new SocketError(`cannot look at --socket ${path}: ${String(error)}`, { cause: error });
  }
  if (await removeWorthless(path, found)) return;
  if (!found.isSocket())
    throw new SocketError(`--socket ${path} exists and is not a socket; remove it or choose another path`);
  if (await answers(path)) {
    throw new SocketError(`another agent listens on ${path}; stop it first, a node runs one agent`);
  }
  await unlink(path);
}

/**
 * Removes an empty folder (a container runtime makes one for a pod that mounts the socket before it is there), an empty file (kubelet makes
 * one for a hostPath of type FileOrCreate), or a link that leads nowhere. False: it is something else, and stays.
 */
export async function removeWorthless(path: string, found: Stats): Promise<boolean> {
  if (found.isDirectory()) {
    return await rmdir(path).then(
      () => true,
      () => false,
    );
  }
  const worthless = found.isSymbolicLink() ? await leadsNowhere(path) : found.isFile() && found.size === 0;
  if (worthless) await unlink(path);
  return worthless;
}

async function leadsNowhere(link: string): Promise<boolean> {
  try {
    await stat(link);
    return false;
  } catch (error) {
    if (['ENOENT', 'ELOOP'].includes(codeOf(error) ?? '')) return true;
    throw error;
  }
}

/** Whether somebody listens on the socket. */
export function answers(path: string): Promise<boolean> {
  return new Promise((resolve, reject) => {
    const socket = connect(path);
    socket.once('connect', () => {
      socket.destroy();
      resolve(true);
    });
    socket.once('error', (error: NodeJS.ErrnoException) => {
      socket.destroy();
      if (error.code === 'ECONNREFUSED' || error.code === 'ENOENT') resolve(false);
      else
        reject(new SocketError(`cannot tell whether an agent listens on ${path}: ${error.message}`, { cause: error }));
    });
  });
}
