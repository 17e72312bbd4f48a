import { readFileSync } from 'node:fs';

/** Milliseconds since boot, suspended time included. */
export function bootClock(): number {
  return uptimeSeconds() * 1000;
}

/** Wall clock less boot clock now, in nanoseconds (`/proc/uptime` counts suspended time, as CLOCK_BOOTTIME does). */
export function bootOffset(): bigint {
  return BigInt(Math.round((Date.now() / 1000 - uptimeSeconds()) * 1000)) * 1_000_000n;
}

function uptimeSeconds(): number {
  return Number(readFileSync('/proc/uptime', 'utf8').split(' ')[0]);
}
