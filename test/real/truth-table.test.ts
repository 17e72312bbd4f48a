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
  afterAll(() => cluster?.stop());

  it('is of pods that have an address of each family', async () => {
    const { addresses } = await cluster.host('x/a');
    expect(addresses).toEqual([expect.stringMatching(/^10\.244\./), expect.stringMatching(/^fd00:10:244:/)]);
    const wide = await cluster.kubectl(['get', 'cep', '-n', 'x', 'a', '-o', 'wide']);
    expect(wide.trim().split(/ +/).slice(-2)).toEqual(addresses);
  });

  it.each(TRUTH_CASES)('%s', async (title, policies) => {
    const { table, differences } = await truth.play(policies);
    process.stderr.write(`${title} (TCP 80, TCP 81, UDP 80, UDP 81)\n${table}\n\n`);
    expect(differences).toEqual([]);
  });
});
