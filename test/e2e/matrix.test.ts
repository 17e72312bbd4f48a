import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { Matrix } from './matrix.ts';
import { CASES, RANDOM, SEED } from './matrix-cases.ts';

describe('real packets against the oracle: peers x ports x directions, same node and across nodes', () => {
  let matrix: Matrix;
  beforeAll(async () => {
    matrix = await Matrix.start();
  });
  afterAll(() => matrix?.close());

  it.each(CASES)('%s', async (_, policies) => expect(await matrix.differences(policies)).toEqual([]));

  it.each(RANDOM)(`random policies of seed ${SEED}, number %i`, async (_, policies) =>
    expect(await matrix.differences(policies)).toEqual([]),
  );
});
