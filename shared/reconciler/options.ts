/** The options of a reconciler, checked and with their defaults. */
import { systemClock } from './clock.ts';
import { InvalidOptionError } from './errors.ts';
import type { Operations, ReconcilerOptions } from './types.ts';

type Optional = 'roundsPerSecond' | 'operationsPerSecond' | 'burst' | 'report' | 'onOperation';

export interface Settings<T> extends Required<Omit<ReconcilerOptions<T>, Optional>> {
  /** Milliseconds between the beginnings of two rounds. */
  readonly roundIntervalMs: number;
  /** Infinity when there is no limit. */
  readonly operationsPerSecond: number;
  readonly burst: number;
  readonly report: ReconcilerOptions<T>['report'];
  readonly onOperation: ReconcilerOptions<T>['onOperation'];
}

const OPERATIONS = ['update', 'delete', 'prune', 'updateBatch', 'deleteBatch'] as const;

/** Throws `InvalidOptionError`, or the StateDB's error for a table that is not its own. */
export function settingsOf<T>(options: ReconcilerOptions<T>): Settings<T> {
  const { name, db, table, operations } = options;
  const fail = (option: string, value: unknown, wanted: string): never => {
    throw new InvalidOptionError(String(name), option, value, wanted);
  };
  const number = (option: keyof ReconcilerOptions<T>, fallback: number, least: number, whole = false): number => {
    const value = options[option] ?? fallback;
    if (typeof value === 'number' && value >= least && (!whole || Number.isInteger(value))) return value;
    return fail(option, value, `${whole ? 'a whole number' : 'a number'} from ${least}`);
  };
  const rate = (option: 'roundsPerSecond' | 'operationsPerSecond'): number => {
    const value = options[option] ?? Number.POSITIVE_INFINITY;
    return typeof value === 'number' && value > 0 ? value : fail(option, value, 'a number above 0');
  };
  if (typeof name !== 'string' || name === '') fail('name', name, 'a string that is not empty');
  if (typeof db?.changes !== 'function') fail('db', db, 'a StateDB');
  if (typeof table?.spec?.key !== 'function') fail('table', table, 'what db.table() returned');
  checkOperations(operations, fail);
  const inputs = options.inputs ?? [table];
  for (const input of [table, ...inputs]) db.pendingInitialisers(input);
  const minBackoffMs = number('minBackoffMs', 50, 1);
  const operationsPerSecond = rate('operationsPerSecond');
  return {
    name,
    db,
    table,
    operations,
    inputs,
    minBackoffMs,
    maxBackoffMs: number('maxBackoffMs', Math.max(30_000, minBackoffMs), minBackoffMs),
    pruneIntervalMs: number('pruneIntervalMs', 0, 0),
    refreshIntervalMs: number('refreshIntervalMs', 0, 0),
    batchSize: number('batchSize', 1000, 1, true),
    concurrency: number('concurrency', 1, 1, true),
    operationTimeoutMs: number('operationTimeoutMs', 0, 0),
    stopGraceMs: number('stopGraceMs', 10_000, 0),
    roundIntervalMs: 1000 / rate('roundsPerSecond'),
    operationsPerSecond,
    burst: number('burst', Math.max(1, operationsPerSecond), 1),
    report: options.report,
    clock: options.clock ?? systemClock,
    random: options.random ?? Math.random,
    onError: options.onError ?? (() => {}),
    onOperation: options.onOperation,
    onPruneError:
      options.onPruneError ??
      ((error) =>
        process.emitWarning(`reconciler "${name}" cannot prune: ${error.message}`, { code: 'RECONCILER_PRUNE' })),
  };
}

function checkOperations<T>(
  operations: Operations<T>,
  fail: (option: string, value: unknown, wanted: string) => never,
): void {
  for (const operation of OPERATIONS) {
    const value: unknown = operations?.[operation];
    const needed = operation === 'update' || operation === 'delete';
    if (typeof value === 'function' || (value === undefined && !needed)) continue;
    fail(`operations.${operation}`, value, needed ? 'a function' : 'a function, or leave it out');
  }
}
