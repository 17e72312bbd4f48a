import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { cgroupIdOf } from 'libbpf-ts';

/** The kernel's number of the root cgroup. */
const ROOT = 1n;

/**
 * The folder of the node's root cgroup of version 2; undefined where this process does not see it. In a container with a cgroup namespace of its own the
 * cgroup that is mounted is the container's.
 */
export function mountedCgroup(): string | undefined {
  for (const [, folder = ''] of readFileSync('/proc/self/mounts', 'utf8').matchAll(/^\S+ (\S+) cgroup2 /gm)) {
    try {
      if (cgroupIdOf(folder) === ROOT) return folder;
    } catch {
      // Not to be seen from here.
    }
  }
  return undefined;
}

/** The cgroup of version 2 at `folder` or, where version 1 is mounted there, at `folder/unified`; undefined where neither is one. */
export function cgroupAt(folder: string): string | undefined {
  return [folder, join(folder, 'unified')].find((each) => existsSync(join(each, 'cgroup.controllers')));
}
