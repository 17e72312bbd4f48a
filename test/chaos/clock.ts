/**
 * The one clock of a run: milliseconds since this machine started (CLOCK_MONOTONIC). It is the same in every process, so that what one
 * process sends and another receives compares directly.
 */
export const now = (): number => Number(process.hrtime.bigint()) / 1e6;
