import { readFileSync } from 'node:fs';

/** The folder of the root cgroup of version 2, as far as this process sees it; undefined where none is mounted. */
export function rootCgroup(mounts: string = readFileSync('/proc/self/mounts', 'utf8')): string | undefined {
  return /^\S+ (\S+) cgroup2 /m.exec(mounts)?.[1];
}
