/** Milliseconds that never go back. */
export type Stopwatch = () => number;

export const machineStopwatch: Stopwatch = () => performance.now();

/** Milliseconds of computing before other work, such as the renewal of the lease, may run. */
export const SHARE_MS = 10;

/** A share that begins now: whether some of it is left. To be asked after each piece of work, so that at least one gets done. */
export function timeShare(stopwatch: Stopwatch): () => boolean {
  const end = stopwatch() + SHARE_MS;
  return () => stopwatch() < end;
}
