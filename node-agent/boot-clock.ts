import { readFileSync } from 'node:fs';

/** Wall clock less boot clock now, in nanoseconds (`/proc/uptime` counts suspended time, as CLOCK_BOOTTIME does). */
export function bootOffset(): bigint {
  const uptime = Number(readFileSync('/proc/uptime', 'utf8').split(' ')[0]);
  return BigInt(Math.round((Date.now() / 1000 - uptime) * 1000)) * 1_000_000n;
}
