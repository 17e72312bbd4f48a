import { readFileSync } from 'node:fs';
import { PlatformError } from './errors.ts';

let known: number | undefined;

/** Number of CPUs in a kernel list such as `0-3,8`: one more than the highest number, as per-CPU maps count them. */
export function parsePossible(list: string): number {
  let highest = -1;
  for (const part of list.trim().split(',')) {
    const match = /^(\d+)(?:-(\d+))?$/.exec(part);
    if (match === null) throw new PlatformError(`cannot read the list of possible CPUs ${JSON.stringify(list)}`);
    highest = Math.max(highest, Number(match[2] ?? match[1]));
  }
  return highest + 1;
}

/** CPUs that the kernel could ever have: the number of copies in a per-CPU value. Fixed while the machine is up. */
export function possibleCpus(): number {
  known ??= parsePossible(readFileSync('/sys/devices/system/cpu/possible', 'utf8'));
  return known;
}

/** Bytes that one CPU's copy of a per-CPU value takes: the value size rounded up to 8. */
export function percpuStride(valueSize: number): number {
  return (valueSize + 7) & ~7;
}
