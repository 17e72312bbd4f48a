/** Whatever a node enforces stays true of the world as it is, whichever watch lags and whichever write fails. */
import { expect, it } from '@jest/globals';
import fc from 'fast-check';
import { step } from './steps.ts';
import { Story } from './story.ts';

/** `WEIR_TRACES=5000 npm run jest -- test/lag` looks at more of them, `WEIR_SEED` at the ones that failed. */
const TRACES = Number(process.env['WEIR_TRACES'] ?? 60);
const SEED = process.env['WEIR_SEED'];
const LENGTH = 60;

it('every verdict of every node is one that the newest it knows, or something later, gives', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 1, maxLength: LENGTH, size: 'max' }), async (steps) => {
      const story = new Story();
      try {
        for (const [index, each] of steps.entries()) {
          const problem = await story.take(each);
          expect(problem && `after step ${index}: ${problem}`).toBeUndefined();
        }
        expect(await story.end()).toBeUndefined();
      } finally {
        await story.stop();
      }
    }),
    { numRuns: TRACES, ...(SEED === undefined ? {} : { seed: Number(SEED) }) },
  );
}, 600_000);
