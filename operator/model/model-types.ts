import type { StateDB } from '@weir/statedb';
import type { PolicyLimits } from '../limits.ts';
import type { Tables } from '../tables.ts';
import type { PodBookOptions } from './pod-book.ts';
import type { Stopwatch } from './time-share.ts';

export interface ModelOptions extends PodBookOptions {
  readonly db: StateDB;
  readonly tables: Tables;
  /** Milliseconds an unused identity is kept. */
  readonly identityGraceMs: number;
  /** What policies may ask for. Default: nothing is limited. */
  readonly policyLimits?: PolicyLimits;
  /** As in `ResolveOptions`. */
  readonly networkPolicyCidrs?: 'all' | 'external';
  /** Milliseconds between two statuses of one policy. Default 0: nothing is delayed. */
  readonly statusIntervalMs?: number;
  /** Default: the machine's. */
  readonly stopwatch?: Stopwatch;
}

/** What is left for later rounds. */
export interface Later {
  /** There was no time for something. */
  readonly more: boolean;
  /** Milliseconds until a status that was delayed is due; undefined: none was. */
  readonly dueInMs: number | undefined;
  /** The same for Events. */
  readonly eventDueInMs: number | undefined;
}
