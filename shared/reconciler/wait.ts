import type { Revision } from '@weir/statedb';
import type { Clock } from './clock.ts';
import { InvalidOptionError, ReconcilerStoppedError } from './errors.ts';
import type { Frontier, Waiter } from './frontier.ts';
import type { WaitOptions } from './types.ts';

/**
 * Resolves when the frontier has reached `revision`, or when the time is over. Rejects with the signal's reason, with
 * `InvalidOptionError`, or with `ReconcilerStoppedError`.
 */
export function waitFor(
  frontier: Frontier,
  revision: Revision,
  options: WaitOptions | AbortSignal,
  { name, clock }: { readonly name: string; readonly clock: Clock },
): Promise<void> {
  const { timeoutMs, signal } = options instanceof AbortSignal ? { timeoutMs: undefined, signal: options } : options;
  return new Promise((resolve, reject) => {
    if (!Number.isFinite(revision)) throw new InvalidOptionError(name, 'revision', revision, 'a revision of the table');
    if (timeoutMs !== undefined && !(timeoutMs >= 0)) {
      throw new InvalidOptionError(name, 'timeoutMs', timeoutMs, 'a number from 0');
    }
    if (frontier.attempted >= revision) return resolve();
    if (signal?.aborted) return reject(signal.reason);
    const end = (action: () => void) => (): void => {
      frontier.waiters.delete(waiter);
      signal?.removeEventListener('abort', aborted);
      forget?.();
      action();
    };
    const aborted = end(() => reject(signal?.reason));
    const waiter: Waiter = {
      revision,
      reached: end(resolve),
      stopped: end(() => reject(new ReconcilerStoppedError(name, `it did not attempt revision ${revision}`))),
    };
    frontier.waiters.add(waiter);
    signal?.addEventListener('abort', aborted, { once: true });
    const forget =
      timeoutMs === undefined || timeoutMs === Number.POSITIVE_INFINITY
        ? undefined
        : clock.after(timeoutMs, end(resolve));
  });
}
