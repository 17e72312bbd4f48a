/** Milliseconds that never go back. */
export type Stopwatch = () => number;

export const machineStopwatch: Stopwatch = () => performance.now();

/** Milliseconds of computing for each of the three parts of a round: changes and policies that can be afforded again are taken in, statuses folded. */
export const SHARE_MS = 10;

/** A share that begins now: whether some of it is left. To be asked after each piece of work, so that at least one gets done. */
export function timeShare(stopwatch: Stopwatch): () => boolean {
  const end = stopwatch() + SHARE_MS;
  return () => stopwatch() < end;
}

/** The same, of a share that begins when it is asked for the first time. */
export function laterShare(stopwatch: Stopwatch): () => boolean {
  let hasTime: (() => boolean) | undefined;
  return () => {
    hasTime ??= timeShare(stopwatch);
    return hasTime();
  };
}
