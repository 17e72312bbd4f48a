import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { Stage } from './stage.ts';
import { STEPS } from './steps.ts';

describe('the story, from no policy and back to it', () => {
  let stage: Stage;
  let faults: string[] = [];
  const told: string[] = [];

  beforeAll(async () => {
    stage = await Stage.set({
      title: () => undefined,
      say: (text) => told.push(text),
      fault: (text) => faults.push(text),
    });
  });
  afterAll(() => stage?.close());

  for (const step of STEPS) {
    it(step.title, async () => {
      faults = [];
      told.length = 0;
      await step.play(stage);
      if (faults.length > 0) throw new Error(`${faults.join('\n')}\n\nwhat happened:\n${told.join('\n')}`);
      expect(told.length).toBeGreaterThan(0);
    });
  }
});
