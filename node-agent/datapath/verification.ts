/** Everything that the audit looks at, at once, for somebody who asks. What is found is put back, as ever. */
import type { Verification } from '../core.ts';
import { NotStartedError, VerifyLaterError } from '../errors.ts';
import type { Audit } from './audit.ts';
import { faultText } from './faults.ts';

export interface Verifying {
  readonly audit: Pick<Audit, 'look' | 'compare' | 'canCompare' | 'repairs' | 'faults' | 'passes'>;
  /** Runs it beside no round; not at all once the signal is aborted. */
  readonly exclusively: (job: () => Promise<void>) => Promise<void>;
  readonly signal: AbortSignal;
}

/** @throws VerifyLaterError, NotStartedError */
export async function verify({ audit, exclusively, signal }: Verifying): Promise<Verification> {
  if (!audit.canCompare) throw new VerifyLaterError();
  const began = performance.now();
  const before = new Map(audit.repairs().map(({ part, count }) => [part, count]));
  await exclusively(() => audit.look());
  await audit.compare(exclusively);
  if (signal.aborted) throw new NotStartedError('verify maps');
  return {
    seconds: (performance.now() - began) / 1000,
    mended: audit.repairs().flatMap(({ part, count, last }) => {
      const more = count - (before.get(part) ?? 0);
      return more === 0 ? [] : [{ part, count: more, last }];
    }),
    faults: audit.faults().map(faultText),
    left: audit.passes().reduce((sum, pass) => sum + pass.left, 0),
  };
}
