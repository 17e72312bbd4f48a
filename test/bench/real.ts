/** Suite `real`: Weir on a real Kubernetes: pod start beside the bridge plugin, apply to enforced, what the programs weigh, install. */

import { latency } from './real-latency.ts';
import { podStart } from './real-pods.ts';
import { weight } from './real-weight.ts';
import type { Suite } from './suite.ts';

export const real: Suite = async function* () {
  yield* podStart();
  yield* latency(2);
  yield* latency(5);
  yield* weight();
};
