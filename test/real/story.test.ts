import { afterAll, beforeAll, describe, it } from '@jest/globals';
import type { RealCluster } from '../cluster/real/index.ts';
import { Stage } from '../story/stage.ts';
import { STEPS } from '../story/steps.ts';
import { weirCluster } from './weir.ts';

describe('the story of the demo, on a real Kubernetes', () => {
  let cluster: RealCluster;
  let stage: Stage;
  const faults: string[] = [];
  const told: string[] = [];
  beforeAll(async () => {
    // One step applies a policy that cannot be read.
    cluster = await weirCluster({ install: { policyWebhook: { enabled: false } } });
    stage = await Stage.set(
      { title: () => undefined, say: (text) => told.push(text), fault: (text) => faults.push(text) },
      cluster,
    );
  }, 240_000);
  afterAll(async () => {
    await stage?.close();
    await cluster?.stop();
  });

  it.each(STEPS)('$title', async ({ play }) => {
    faults.length = 0;
    told.length = 0;
    await play(stage);
    if (faults.length > 0) throw new Error(`${faults.join('\n')}\n\nwhat happened:\n${told.join('\n')}`);
  });
});
