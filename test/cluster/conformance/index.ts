/**
 * One suite of API conformance cases for two servers: the real Kubernetes API server and the embedded one.
 *
 * - A case does requests, kubectl or helm commands, and what was seen of each is kept as a step; everything that differs
 *   from run to run is replaced by placeholders that keep equality and order (normalise.ts).
 * - golden/*.json hold what the real server said. The embedded server must say the same but for accepted.ts; an entry
 *   there that nothing needs any more is an error too.
 * - `UPDATE_GOLDEN=1 npm run test:real -- test/real/conformance.test.ts` records the real server anew.
 */
export { ACCEPTED } from './accepted.ts';
export { GROUPS } from './cases/index.ts';
export { targetOf } from './client.ts';
export { accepts, differences, judge, readable, type Verdict } from './compare.ts';
export { readGolden, writeGolden } from './golden.ts';
export { transcriptOf } from './runner.ts';
export type { Accepted, Case, Difference, Session, Step, Target, Transcript } from './types.ts';
