/** Packets against the oracle, on one cluster: neither part kills anything, and each takes away what it has made. */
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { Cluster } from '../cluster/index.ts';
import { Matrix } from './matrix.ts';
import { CASES, RANDOM, SEED } from './matrix-cases.ts';
import { TRUTH_CASES } from './truth-cases.ts';
import { TruthTable } from './truth-table.ts';

let cluster: Cluster;
beforeAll(async () => {
  cluster = await Cluster.start();
});
afterAll(() => cluster?.stop());

describe('the truth table on the embedded cluster: peers x ports x directions', () => {
  let truth: TruthTable;
  beforeAll(async () => {
    truth = await TruthTable.set(cluster);
  });
  afterAll(() => truth?.clear());

  it.each(TRUTH_CASES)('%s', async (_, policies) => expect((await truth.play(policies)).differences).toEqual([]));
});

describe('real packets against the oracle: peers x ports x directions, same node and across nodes', () => {
  let matrix: Matrix;
  beforeAll(async () => {
    matrix = await Matrix.start(cluster);
  });
  afterAll(() => matrix?.close());

  it.each(CASES)('%s', async (_, policies) => expect(await matrix.differences(policies)).toEqual([]));

  it.each(RANDOM)(`random policies of seed ${SEED}, number %i`, async (_, policies) =>
    expect(await matrix.differences(policies)).toEqual([]),
  );
});
