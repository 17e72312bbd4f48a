/** Whether the golden transcripts are still what the real API server says; UPDATE_GOLDEN=1 records them again. */
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import {
  differences,
  GROUPS,
  readable,
  readGolden,
  targetOf,
  transcriptOf,
  writeGolden,
} from '../cluster/conformance/index.ts';
import { RealCluster } from '../cluster/real/index.ts';

let cluster: RealCluster;

beforeAll(async () => {
  cluster = await RealCluster.start({ nodes: 0, install: false });
}, 300_000);

afterAll(() => cluster?.stop());

describe('the real API server', () => {
  it.each(Object.entries(GROUPS))(
    'says what the golden transcript of %s holds',
    async (group, cases) => {
      const seen = await transcriptOf(targetOf(cluster.kubeconfig), cases);
      if (process.env.UPDATE_GOLDEN === '1') writeGolden(group, seen);
      expect(readable(differences(readGolden(group), seen))).toBe('');
    },
    300_000,
  );
});
