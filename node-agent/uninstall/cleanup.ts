import { existsSync } from 'node:fs';
import { readdir, rmdir } from 'node:fs/promises';
import { dirname } from 'node:path';
import { codeOf } from '@weir/process/errors';
import { claimSocketPath } from '../api/socket.ts';
import type { BaseConfig } from '../config/config.ts';
import type { Logger } from '../core.ts';
import { RootLock } from '../datapath/index.ts';
import type { Removal } from '../parts/contract.ts';
import { removeFromNode } from './remove.ts';
import type { RemovalReport } from './types.ts';

type CleanupConfig = Pick<BaseConfig, 'socket' | 'bpfRoot' | 'stateDir'>;

/**
 * What Weir left on this node is taken away by hand, for nodes that no uninstall reached. Rejects with `SocketError` or
 * `AgentRunningError` while an agent runs.
 * @param shares of parts that were not started
 */
export async function cleanup(config: CleanupConfig, shares: readonly Removal[], log: Logger): Promise<RemovalReport> {
  const report = await removeFromNode([{ refuse: () => refuseWhileRunning(config, log) }, ...shares]);
  const folder = dirname(config.socket);
  return {
    ...report,
    removed: [...report.removed, ...(await removeEmpty(config.stateDir)), ...(await removeEmpty(folder))],
  };
}

/** Before anything is touched: an agent would go on without its plugin. It may listen on another socket, its maps or its state folder are the same. */
async function refuseWhileRunning({ socket, bpfRoot, stateDir }: CleanupConfig, log: Logger): Promise<void> {
  if (existsSync(socket)) await claimSocketPath(socket);
  const lock = new RootLock(bpfRoot, stateDir, log);
  lock.acquireExisting();
  lock.release();
}

/** Somebody else's files keep a folder; so does a mount. */
async function removeEmpty(folder: string): Promise<readonly string[]> {
  try {
    if ((await readdir(folder)).length > 0) return [];
    await rmdir(folder);
    return [folder];
  } catch (error) {
    if (['ENOENT', 'EBUSY', 'EROFS', 'EACCES', 'ENOTEMPTY'].includes(codeOf(error) ?? '')) return [];
    throw error;
  }
}
