import { existsSync } from 'node:fs';
import { readdir, rmdir } from 'node:fs/promises';
import { dirname } from 'node:path';
import { codeOf } from '@weir/process/errors';
import { claimSocketPath } from '../api/socket.ts';
import { type RunCommand, runCommand } from '../cni/command.ts';
import { removeCni } from '../cni/install.ts';
import { PodNetwork } from '../cni/network.ts';
import type { AgentConfig } from '../config/config.ts';
import type { Core } from '../core.ts';
import { RootLock } from '../datapath/index.ts';
import { removeRoutes } from '../routing/index.ts';
import { removeFromNode } from './remove.ts';
import type { RemovalReport } from './types.ts';

const BIN_DIR = '/opt/cni/bin';

type CleanupConfig = Pick<AgentConfig, 'socket' | 'bpfRoot' | 'stateDir' | 'cniInstall' | 'cniConfDir'>;

/**
 * What Weir left on this node is taken away by hand, for nodes that no uninstall reached. Rejects with `SocketError` or
 * `AgentRunningError` while an agent runs.
 */
export async function cleanup(options: {
  readonly config: CleanupConfig;
  /** A core that is not started. */
  readonly core: Core;
  readonly run?: RunCommand;
}): Promise<RemovalReport> {
  const { config, core } = options;
  const run = options.run ?? runCommand;
  const report = await removeFromNode({
    refuse: () => refuseWhileRunning(config),
    cni: () => removeCni({ binDir: config.cniInstall ?? BIN_DIR, confDir: config.cniConfDir }),
    datapath: () => removeDatapath(core, config),
    podLinks: () => new PodNetwork({ run }).hostLinks(),
    routes: () => removeRoutes(run),
  });
  const folder = dirname(config.socket);
  return {
    ...report,
    removed: [...report.removed, ...(await removeEmpty(config.stateDir)), ...(await removeEmpty(folder))],
  };
}

/** Programs, maps, pins and state; names the folders that were there. */
export async function removeDatapath(
  core: Core,
  config: Pick<AgentConfig, 'bpfRoot' | 'stateDir'>,
): Promise<readonly string[]> {
  const there = [config.bpfRoot, config.stateDir].filter((folder) => existsSync(folder));
  await core.remove();
  return there.filter((folder) => !existsSync(folder));
}

/** Before anything is touched: an agent would go on without its plugin. It may listen on another socket, its maps are the same. */
async function refuseWhileRunning({ socket, bpfRoot, stateDir }: CleanupConfig): Promise<void> {
  if (existsSync(socket)) await claimSocketPath(socket);
  const lock = new RootLock(bpfRoot, stateDir);
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
