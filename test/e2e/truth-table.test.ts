import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { Cluster } from '../cluster/index.ts';
import { TRUTH_CASES } from './truth-cases.ts';
import { TruthTable } from './truth-table.ts';

describe('the truth table on the embedded cluster: peers x ports x directions', () => {
  let cluster: Cluster;
  let truth: TruthTable;
  beforeAll(async () => {
    cluster = await Cluster.start();
    truth = await TruthTable.set(cluster);
  });
  afterAll(() => cluster?.stop());

  it.each(TRUTH_CASES)('%s', async (_, policies) => expect((await truth.play(policies)).differences).toEqual([]));
});
