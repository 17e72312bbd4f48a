/**
 * For tests of what is kept up to date incrementally: after every step of a random trace, it must equal what is computed
 * anew from its inputs. Needs fast-check.
 */
import fc from 'fast-check';
import { StateDBError } from '../errors.ts';
import { differences, type Result } from './differences.ts';

export type { Result } from './differences.ts';

/** One system under test, at the beginning of a trace. Each function may be asynchronous. */
export interface World<Step> {
  /** Does one step; a step that has no meaning here does nothing. */
  apply(step: Step): void | Promise<void>;
  /** What is kept incrementally, once it has settled. */
  incremental(): Result | Promise<Result>;
  /** The same from the inputs alone, by the plainest code there is. */
  recompute(): Result | Promise<Result>;
  dispose?(): void | Promise<void>;
}

/** What `checkIncremental` holds to: after any steps, what was derived by increments is what is derived anew. */
export interface IncrementalCheck<Step> {
  readonly step: fc.Arbitrary<Step>;
  /** A new world, sharing nothing with any other. */
  create(): World<Step> | Promise<World<Step>>;
}

/** fast-check's own parameters, and how long a trace is. */
export interface CheckParameters<Step> extends fc.Parameters<[Step[]]> {
  /** At least 1. Default 30. */
  readonly maxSteps?: number;
}

/**
 * In a test: what is kept incrementally differs from what is computed anew.
 * @fix Correct the incremental code; the message has the shortest trace found, and each key that differs.
 */
export class IncrementalMismatchError extends StateDBError {
  readonly code = 'ERR_STATEDB_INCREMENTAL_MISMATCH';
}

/**
 * Runs random traces and compares after every step, and before the first. Rejects with fast-check's report of the
 * shortest trace found that fails, with its `IncrementalMismatchError`: the step, and each key that differs.
 */
export async function checkIncremental<Step>(
  check: IncrementalCheck<Step>,
  parameters: CheckParameters<Step> = {},
): Promise<void> {
  const { maxSteps = 30, ...others } = parameters;
  const traces = fc.array(check.step, { minLength: 1, maxLength: maxSteps, size: 'max' });
  await fc.assert(
    fc.asyncProperty(traces, async (steps) => {
      const world = await check.create();
      try {
        await compare(world, 'before the first step');
        for (const [index, step] of steps.entries()) {
          await world.apply(step);
          await compare(world, `after step ${index + 1}, ${fc.stringify(step)}`);
        }
      } finally {
        await world.dispose?.();
      }
    }),
    // With the error as text in the message: runners print messages, not causes.
    { includeErrorInReport: true, ...others },
  );
}

async function compare<Step>(world: World<Step>, when: string): Promise<void> {
  const lines = differences(await world.incremental(), await world.recompute());
  if (lines.length === 0) return;
  throw new IncrementalMismatchError(
    [`${when}, incremental (+) is not what recomputing gives (-):`, ...lines].join('\n'),
  );
}
