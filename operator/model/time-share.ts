/** Milliseconds that never go back. */
export type Stopwatch = () => number;

export const machineStopwatch: Stopwatch = () => performance.now();

/**
 * Milliseconds of computing for each of the five parts of a round: changes, pods that wait and policies that can be afforded again are taken in,
 * identities come to sets, statuses are folded.
 */
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

/** A share of each round, on average, for work of which a single piece may take longer than that: the next rounds go without. */
export class RoundShare {
  readonly #stopwatch: Stopwatch;
  /** Milliseconds that were taken of later rounds. */
  #overdrawnMs = 0;

  constructor(stopwatch: Stopwatch) {
    this.#stopwatch = stopwatch;
  }

  /** To be called once a round. Does pieces while there is time, at least one where there is any; `piece` returns false when there was none. */
  spend(hasWork: boolean, piece: (hasTime: () => boolean) => boolean): void {
    this.#overdrawnMs = Math.max(0, this.#overdrawnMs - SHARE_MS);
    if (this.#overdrawnMs > 0 || !hasWork) return;
    let now = this.#stopwatch();
    const end = now + SHARE_MS;
    const hasTime = (): boolean => {
      now = this.#stopwatch();
      return now < end;
    };
    while (piece(hasTime) && hasTime());
    this.#overdrawnMs = Math.max(0, now - end);
  }
}
