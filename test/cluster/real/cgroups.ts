/**
 * The cgroups of a cluster: in every hierarchy of the machine one for the cluster, and in it one for each node, which becomes the root
 * of the node's cgroup namespace. They lie below the one that this process is in.
 */
import { existsSync, mkdirSync, readdirSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { AssetError } from './assets.ts';

const CGROUP = '/sys/fs/cgroup';

export interface Hierarchy {
  /** Folder under /sys/fs/cgroup: `memory`, `systemd`, `unified`. */
  readonly name: string;
  /** The cluster's cgroup. */
  readonly path: string;
}

/** The hierarchies of this machine, with the place of a cluster in each. @param name of the cluster's cgroup. */
export function hierarchies(name: string): readonly Hierarchy[] {
  if (!existsSync(join(CGROUP, 'memory')))
    throw new AssetError(
      'this machine has cgroup v2 only; nodes need the v1 hierarchies (/sys/fs/cgroup/memory and others)',
      'boot with systemd.unified_cgroup_hierarchy=0, or use a machine that mounts them',
    );
  const lines = readFileSync('/proc/self/cgroup', 'utf8').trim().split('\n');
  return lines.flatMap((line) => {
    // "4:memory:/path"; the unified hierarchy's second field is empty, a named one's is "name=systemd".
    const [, controllers = '', ...rest] = line.split(':');
    const hierarchy = controllers.replace(/^name=/, '') || 'unified';
    const own = rest.join(':');
    return existsSync(join(CGROUP, hierarchy)) ? [{ name: hierarchy, path: join(CGROUP, hierarchy, own, name) }] : [];
  });
}

/** @returns the new cgroups, one a hierarchy. */
export function addNode(all: readonly Hierarchy[], node: string): readonly string[] {
  return all.map(({ name, path }) => {
    for (const folder of [path, join(path, node)]) {
      mkdirSync(folder, { recursive: true });
      if (name !== 'cpuset') continue;
      // A new cpuset has no CPU and no memory, and nothing can join it.
      for (const file of ['cpuset.cpus', 'cpuset.mems'])
        writeFileSync(join(folder, file), readFileSync(join(folder, '..', file)));
    }
    return join(path, node);
  });
}

/** Undefined when it is gone: cgroups come and go while one looks. */
function unlessGone<T>(get: () => T): T | undefined {
  try {
    return get();
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT' || code === 'ENODEV') return undefined;
    throw error;
  }
}

export const childrenOf = (path: string): readonly string[] =>
  (unlessGone(() => readdirSync(path, { withFileTypes: true })) ?? [])
    .filter((entry) => entry.isDirectory())
    .map((entry) => join(path, entry.name));

/** Processes in a cgroup and below it. */
export function members(path: string): readonly number[] {
  const text = unlessGone(() => readFileSync(join(path, 'cgroup.procs'), 'utf8')) ?? '';
  return [...text.split('\n').filter(Boolean).map(Number), ...childrenOf(path).flatMap(members)];
}

/** Removes cgroups with all below them; they empty out a moment after their last process has ended. */
export async function remove(paths: readonly string[]): Promise<void> {
  const end = Date.now() + 60_000;
  while (paths.map(removeOnce).includes(false) && Date.now() < end) await sleep(50);
}

function removeOnce(path: string): boolean {
  try {
    if (!existsSync(path)) return true;
    for (const child of childrenOf(path)) if (!removeOnce(child)) return false;
    rmdirSync(path);
    return true;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT') return true;
    if (code === 'EBUSY' || code === 'ENOTEMPTY') return false;
    throw error;
  }
}
