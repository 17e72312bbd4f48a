/** Which failures of writes are the normal order of things. */
import { ApiError } from '@weir/kube';
import { DependencyError } from '../errors.ts';

/** Milliseconds for which a write may wait for another object, or be overtaken by another hand: after that a person should look. */
const ORDINARY_MS = 60_000;

/** Whether a write that has failed for `failingMs` milliseconds only waits, and is worth no more than a line for debugging. */
export function isOrdinaryWait(error: Error, failingMs: number): boolean {
  const passes = error instanceof DependencyError || (error instanceof ApiError && error.conflict);
  return passes && failingMs < ORDINARY_MS;
}
