/** The options of a reconciler, checked and with their defaults. */
import { systemClock } from './clock.ts';
import { InvalidOptionError } from './errors.ts';
import type { ReconcilerOptions } from './types.ts';

export interface Settings<T> extends Required<Omit<ReconcilerOptions<T>, 'roundsPerSecond'>> {
  /** Milliseconds between the beginnings of two rounds. */
  readonly roundIntervalMs: number;
}

/** Throws `InvalidOptionError`. */
export function settingsOf<T>(options: ReconcilerOptions<T>): Settings<T> {
  const { name, db, table, operations } = options;
  const number = (option: keyof ReconcilerOptions<T>, value: number, least: number, whole = false): number => {
    if (!(value >= least) || (whole && !Number.isInteger(value))) {
      throw new InvalidOptionError(
        name,
        String(option),
        value,
        `${whole ? 'a whole number' : 'a number'} from ${least}`,
      );
    }
    return value;
  };
  const minBackoffMs = number('minBackoffMs', options.minBackoffMs ?? 50, 1);
  const rounds = options.roundsPerSecond ?? Number.POSITIVE_INFINITY;
  if (!(rounds > 0)) throw new InvalidOptionError(name, 'roundsPerSecond', rounds, 'a number above 0');
  return {
    name,
    db,
    table,
    operations,
    minBackoffMs,
    maxBackoffMs: number('maxBackoffMs', options.maxBackoffMs ?? Math.max(30_000, minBackoffMs), minBackoffMs),
    pruneIntervalMs: number('pruneIntervalMs', options.pruneIntervalMs ?? 0, 0),
    refreshIntervalMs: number('refreshIntervalMs', options.refreshIntervalMs ?? 0, 0),
    batchSize: number('batchSize', options.batchSize ?? 1000, 1, true),
    concurrency: number('concurrency', options.concurrency ?? 1, 1, true),
    roundIntervalMs: 1000 / rounds,
    clock: options.clock ?? systemClock,
    random: options.random ?? Math.random,
    onError: options.onError ?? (() => {}),
    onPruneError:
      options.onPruneError ??
      ((error) =>
        process.emitWarning(`reconciler "${name}" cannot prune: ${error.message}`, { code: 'RECONCILER_PRUNE' })),
  };
}
