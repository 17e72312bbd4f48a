/** Whatever a node enforces stays true of the world as it is, whichever watch lags and whichever write fails. */
import { expect, it } from '@jest/globals';
import fc from 'fast-check';
import { runs } from '../runs.ts';
import { deafStart, step } from './steps.ts';
import { type Step, Story } from './story.ts';

/** `WEIR_TRACES=5000 npm run jest -- test/lag` looks at more of them, `WEIR_SEED` at the ones that failed. */
const TRACES = Number(process.env.WEIR_TRACES ?? runs(60));
const SEED = process.env.WEIR_SEED;
const LENGTH = 60;

const options = (runs: number) => ({ numRuns: runs, ...(SEED === undefined ? {} : { seed: Number(SEED) }) });

/** What is wrong after each of the steps is thrown. */
async function take(story: Story, steps: readonly Step[]): Promise<void> {
  for (const [index, each] of steps.entries()) {
    const problem = await story.take(each);
    expect(problem && `after step ${index}: ${problem}`).toBeUndefined();
  }
}

it('every verdict of every node is one that the newest it knows, or something later, gives', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 1, maxLength: LENGTH, size: 'max' }), async (steps) => {
      const story = new Story();
      try {
        await take(story, steps);
        expect(await story.end()).toBeUndefined();
      } finally {
        await story.stop();
      }
    }),
    options(TRACES),
  );
}, 600_000);

it('so is every verdict of an agent that starts and is not told all: who has changed is not who he was', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 5, maxLength: 25 }), deafStart, async (steps, deaf) => {
      const story = new Story();
      try {
        await take(story, steps);
        expect(await story.end()).toBeUndefined();
        await take(story, deaf);
        expect(await story.end()).toBeUndefined();
      } finally {
        await story.stop();
      }
    }),
    options(TRACES),
  );
}, 600_000);
