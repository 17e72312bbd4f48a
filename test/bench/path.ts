/** Suite `path`: the whole path's latency, the price of a packet, memory, throughput, and what the processes weigh. */
import { latency } from './path-latency.ts';
import { memory } from './path-memory.ts';
import { packets } from './path-packets.ts';
import { processes } from './path-processes.ts';
import { throughput } from './path-throughput.ts';
import type { Suite } from './suite.ts';

export const path: Suite = async function* () {
  yield* packets();
  yield* memory();
  yield* throughput();
  yield* latency();
  yield* processes();
};
