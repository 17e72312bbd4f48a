import { InvalidArgumentError } from 'commander';

const UNITS: Readonly<Record<string, number>> = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000 };
/** Timers of Node hold no more. */
const LONGEST_MS = 2 ** 31 - 1;

/** A time as an option gives it: `500ms`, `30s`, `5m`, `1h`. */
export interface Duration {
  readonly text: string;
  readonly ms: number;
}

/** Throws InvalidArgumentError. */
export function parseDuration(text: string): Duration {
  const [, number, unit] = /^(\d{1,9})(ms|s|m|h)$/.exec(text) ?? [];
  const ms = Number(number) * (UNITS[unit ?? ''] ?? Number.NaN);
  if (!(ms > 0 && ms <= LONGEST_MS))
    throw new InvalidArgumentError('It must be a time above 0, as 500ms, 30s, 5m or 1h.');
  return { text, ms };
}
