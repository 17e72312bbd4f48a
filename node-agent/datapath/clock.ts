export interface Clock {
  /** Milliseconds; it only grows. */
  readonly now: () => number;
  /** Lets the rest of the process run; called between steps of a few milliseconds. */
  readonly yieldNow: () => Promise<void>;
  /** Returns once no packet runs any more that ran at `since`, by `now`. */
  readonly quiesce: (since: number) => Promise<void>;
}
