import { readFileSync } from 'node:fs';
import { cgroupIdOf } from 'libbpf-ts';

/** The kernel's number of the root cgroup. */
const ROOT = 1n;

/**
 * The folder of the node's root cgroup of version 2; undefined where this process does not see it. In a container with a cgroup namespace of its own the
 * cgroup that is mounted is the container's.
 */
export function rootCgroup(): string | undefined {
  for (const [, folder = ''] of readFileSync('/proc/self/mounts', 'utf8').matchAll(/^\S+ (\S+) cgroup2 /gm)) {
    try {
      if (cgroupIdOf(folder) === ROOT) return folder;
    } catch {
      // Not to be seen from here.
    }
  }
  return undefined;
}
