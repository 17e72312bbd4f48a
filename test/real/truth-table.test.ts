import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import type { RealCluster } from '../cluster/real/index.ts';
import { TRUTH_CASES } from '../e2e/truth-cases.ts';
import { TruthTable } from '../e2e/truth-table.ts';
import { weirCluster } from './weir.ts';

describe('the truth table on a real Kubernetes: peers x ports x directions', () => {
  let cluster: RealCluster;
  let truth: TruthTable;
  beforeAll(async () => {
    cluster = await weirCluster();
    truth = await TruthTable.set(cluster);
  }, 240_000);
  afterAll(() => cluster?.stop(), 60_000);

  it.each(TRUTH_CASES)('%s', async (title, policies) => {
    const { table, differences } = await truth.play(policies);
    process.stderr.write(`${title} (TCP 80, TCP 81, UDP 80, UDP 81)\n${table}\n\n`);
    expect(differences).toEqual([]);
  });
});
