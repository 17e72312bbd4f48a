/** Everything that the audit looks at, at once, for somebody who asks: not in turns over a minute. What is found is put back, as ever. */
import type { Verification } from '../core.ts';
import { NotStartedError, VerifyLaterError } from '../errors.ts';
import { type Audit, type Content, faultText, type StepResult } from './audit.ts';

const CONTENTS: readonly Content[] = ['slot', 'address'];

export interface Verifying {
  readonly audit: Pick<Audit, 'look' | 'step' | 'isUnderWay' | 'canCompare' | 'repairs' | 'faults' | 'turns'>;
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
  for (const part of CONTENTS) {
    // A turn that is under way has not compared from now on what it began with.
    for (let turns = audit.isUnderWay(part) ? 2 : 1; turns > 0 && !signal.aborted; ) {
      let result: StepResult = 'goes on';
      await exclusively(async () => {
        result = await audit.step(part);
      });
      if ((result as StepResult) === 'ended') turns -= 1;
    }
  }
  if (signal.aborted) throw new NotStartedError('verify maps');
  return {
    seconds: (performance.now() - began) / 1000,
    mended: audit.repairs().flatMap(({ part, count, last }) => {
      const more = count - (before.get(part) ?? 0);
      return more === 0 ? [] : [{ part, count: more, last }];
    }),
    faults: audit.faults().map(faultText),
    left: audit.turns().reduce((sum, turn) => sum + turn.left, 0),
  };
}
